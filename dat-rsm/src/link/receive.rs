//! Messages of peers; each may only touch objects that belong to its link.

use dat_core::backend::Backend;
use dat_core::memory::LmrCreated;
use dat_core::sync::RawLock;

use crate::access::{Credentials, Permission, check_access};
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::id::Handle;
use crate::import::{Acknowledge, Attach, Import, ImportState};
use crate::importer::Importer;
use crate::wire::Body;

/// A request for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    import: u64,
    segment: u32,
    permission: u32,
    caller: Credentials,
    resume: u64,
}

/// A connection to be granted, once its key exists.
struct Grant {
    export: Handle,
    port: usize,
    permission: Permission,
    base: LmrCreated,
    binding: u32,
    number: u64,
    key: Option<LmrCreated>,
    /// The connection to resume.
    importer: Option<Handle>,
    node: u32,
    incarnation: u64,
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Handles a message of a link.
    #[expect(clippy::too_many_lines, reason = "an arm for each message")]
    pub(crate) fn handle_message(&self, index: usize, link: Handle, body: Body) {
        match body {
            Body::Credit => {}
            Body::Connect {
                import,
                segment,
                permission,
                user,
                group,
                resume,
            } => {
                let wish = Wish {
                    import,
                    segment,
                    permission,
                    caller: Credentials { user, group },
                    resume,
                };
                self.handle_request(index, link, wish);
            }
            Body::Accept {
                import,
                importer,
                length,
                address,
                key,
                publication,
            } => self.state.with(|state| {
                let granted = Granted {
                    importer,
                    length,
                    address,
                    key,
                    publication,
                };
                self.granted(state, link, Handle::from_raw(import), granted);
            }),
            Body::Refuse { import, error } => self.state.with(|state| {
                if let Some(import) = requesting_import(state, link, Handle::from_raw(import)) {
                    import.give_up(error);
                }
            }),
            Body::Disconnect { importer } => self.state.with(|state| {
                let importer = Handle::from_raw(importer);
                if importer_at(state, link, importer).is_some() {
                    state.importers.remove(importer);
                }
            }),
            Body::Revoke { import, importer } => self.state.with(|state| {
                self.revoked(state, link, Handle::from_raw(import), importer);
            }),
            Body::Rebind {
                import,
                importer,
                address,
                key,
            } => self.state.with(|state| {
                self.rebound(
                    state,
                    link,
                    Handle::from_raw(import),
                    importer,
                    address,
                    key,
                );
            }),
            Body::Acknowledge { importer } => self.state.with(|state| {
                if let Some(importer) = importer_at(state, link, Handle::from_raw(importer)) {
                    importer.awaited = false;
                }
            }),
            Body::Signal {
                importer,
                no_accumulate,
            } => self.state.with(|state| {
                let export = importer_at(state, link, Handle::from_raw(importer))
                    .map(|importer| importer.export);
                if let Some(export) = export.and_then(|export| state.exports.get_mut(export)) {
                    count_signal(&mut export.signals, no_accumulate);
                }
            }),
            Body::SignalImporters {
                publication,
                no_accumulate,
            } => self.state.with(|state| {
                for (_, import) in state.imports.iter_mut() {
                    if import.attach == Attach::Attached(link) && import.publication == publication
                    {
                        count_signal(&mut import.signals, no_accumulate);
                    }
                }
            }),
            Body::Synchronise {
                importer,
                call,
                offset,
                length,
                writes,
            } => {
                let importer = Handle::from_raw(importer);
                self.asked(link, importer, call, (offset, length), writes);
            }
            Body::Synchronised { call } => self
                .state
                .with(|state| state.answered(link, Handle::from_raw(call))),
        }
    }

    /// Handles a request for a connection.
    ///
    /// Spec: RSMIM-02, RSMPB-03, RSMIM-03
    fn handle_request(&self, index: usize, link: Handle, wish: Wish) {
        let waits = self
            .state
            .with(|state| self.maintains_first(state, link, wish));
        if !waits {
            self.answer_request(index, link, wish);
        }
    }

    /// Grants or refuses a connection.
    pub(crate) fn answer_request(&self, index: usize, link: Handle, wish: Wish) {
        if let Err(error) = self.grant(index, link, wish) {
            let import = wish.import;
            self.state
                .with(|state| self.tell(state, link, Body::Refuse { import, error }));
        }
    }

    fn grant(&self, index: usize, link: Handle, wish: Wish) -> Result<()> {
        let grant = self
            .state
            .with(|state| find_grant(state, index, link, wish))?;
        let class = grant.permission.class();
        let made = match grant.key {
            Some(_) => None,
            None => Some(self.make_key(grant.port, &grant.base, grant.permission)?),
        };
        let mut spare = made;
        let answer = self.state.with(|state| {
            let export = state
                .exports
                .get_mut(grant.export)
                .filter(|export| {
                    export.binding == grant.binding && export.is_published(grant.number)
                })
                .ok_or(RsmError::SegmentNotPublished)?;
            let slot = export.keys.get_mut(class).ok_or(RsmError::InternalError)?;
            if slot.is_none() {
                *slot = spare.take();
            }
            let key = slot.ok_or(RsmError::InternalError)?;
            let (length, address) = (export.length, export.base.registered_address);
            let importer = match grant.importer {
                Some(handle) => {
                    let importer = state.importers.get_mut(handle);
                    let importer = importer.ok_or(RsmError::SegmentNotPublished)?;
                    importer.link = link;
                    importer.awaited = false;
                    importer.until = None;
                    handle
                }
                None if !state.admits_importer(grant.node) => {
                    return Err(RsmError::InsufficientResources);
                }
                None => state
                    .importers
                    .insert(Importer {
                        link,
                        node: grant.node,
                        incarnation: grant.incarnation,
                        export: grant.export,
                        import: wish.import,
                        permission: grant.permission,
                        awaited: false,
                        until: None,
                    })
                    .ok_or(RsmError::InsufficientResources)?,
            };
            // Sent under the lock: messages about later changes of the segment must come after it.
            let body = Body::Accept {
                import: wish.import,
                importer: importer.to_raw(),
                length,
                address,
                key: key.rmr_context,
                publication: grant.number,
            };
            self.tell(state, link, body);
            Ok(())
        });
        if let (Some(key), Some(port)) = (spare, self.ports.get(grant.port)) {
            let _adapter_closed = port.ia.lmr_free(key.lmr);
        }
        answer
    }

    /// Handles the grant of a connection.
    fn granted(&self, state: &mut State, link: Handle, handle: Handle, granted: Granted) {
        let peer = state.links.get(link).and_then(|link| link.peer);
        let (Some(peer), Some(import)) = (peer, requesting_import(state, link, handle)) else {
            // No request waits for this grant.
            let importer = granted.importer;
            let body = Body::Disconnect { importer };
            self.tell(state, link, body);
            return;
        };
        let sound = granted.address.checked_add(granted.length).is_some();
        let again = import.state == ImportState::Connected;
        let same = granted.publication == import.publication && granted.length == import.length;
        if !sound || (again && !same) {
            import.give_up(RsmError::ConnectionAborted);
            let importer = granted.importer;
            let body = Body::Disconnect { importer };
            self.tell(state, link, body);
            return;
        }
        if again && (granted.address, granted.key) != (import.address, import.key) {
            import.key_epoch = import.key_epoch.wrapping_add(1);
        }
        import.attach = Attach::Attached(link);
        import.state = ImportState::Connected;
        if !again {
            import.prove();
        }
        import.publication = granted.publication;
        import.incarnation = peer.incarnation;
        import.importer = granted.importer;
        import.length = granted.length;
        import.address = granted.address;
        import.key = granted.key;
        import.non_coherent = peer.non_coherent;
        import.swapped = peer.big_endian != cfg!(target_endian = "big");
    }

    /// Handles the revocation of a segment.
    ///
    /// Spec: RSMST-01, RSMST-04
    fn revoked(&self, state: &mut State, link: Handle, handle: Handle, importer: u64) {
        let Some(import) = attached_import(state, link, handle) else {
            self.acknowledge(state, link, importer);
            return;
        };
        import.abort();
        import.acknowledge = Some(Acknowledge {
            link,
            importer,
            after: import.posted,
        });
    }

    /// Handles the rebind of a segment; later posts go to the new memory.
    ///
    /// Spec: RSMEX-20
    fn rebound(
        &self,
        state: &mut State,
        link: Handle,
        handle: Handle,
        importer: u64,
        address: u64,
        key: u32,
    ) {
        let Some(import) = attached_import(state, link, handle) else {
            self.acknowledge(state, link, importer);
            return;
        };
        if address.checked_add(import.length).is_none() {
            import.abort();
        }
        import.address = address;
        import.key = key;
        import.key_epoch = import.key_epoch.wrapping_add(1);
        import.acknowledge = Some(Acknowledge {
            link,
            importer,
            after: import.posted,
        });
    }

    fn acknowledge(&self, state: &mut State, link: Handle, importer: u64) {
        let body = Body::Acknowledge { importer };
        self.tell(state, link, body);
    }
}

/// Content of a grant.
struct Granted {
    importer: u64,
    length: u64,
    address: u64,
    key: u32,
    publication: u64,
}

impl State {
    /// Returns the segment of a connection that may resume by this request.
    pub(crate) fn resumed_by(&self, link: Handle, wish: Wish) -> Option<Handle> {
        let slot = self.links.get(link)?;
        // The last messages of a link are handled at once.
        if slot.last_questions.is_some() {
            return None;
        }
        let grant = find_grant(self, slot.port, link, wish).ok()?;
        grant.importer.map(|_| grant.export)
    }
}

fn find_grant(state: &State, index: usize, link: Handle, wish: Wish) -> Result<Grant> {
    let (node, incarnation) = state
        .links
        .get(link)
        .and_then(|link| Some((link.node, link.peer?.incarnation)))
        .ok_or(RsmError::InternalError)?;
    let permission = Permission::from_number(wish.permission)?;
    // The importer connects to the controller that the segment was made on (RSMGEN-08).
    let (handle, export, publication) = state
        .exports
        .iter()
        .filter(|(_, export)| export.port == index)
        .find_map(|(handle, export)| {
            let publication = export.publication.as_ref();
            let publication = publication.filter(|slot| slot.segment == wish.segment)?;
            Some((handle, export, publication))
        })
        .ok_or(RsmError::SegmentNotPublished)?;
    let importer = if wish.resume == 0 {
        check_access(
            &publication.access,
            export.default_access,
            export.owner,
            node,
            wish.caller,
            permission,
        )?;
        None
    } else {
        // A connection keeps its granted rights, even if the list has changed (RSMPB-10). It must
        // be in the table; the peer's claim is not enough.
        let found = state.importers.find(|importer| {
            importer.export == handle
                && importer.import == wish.import
                && importer.permission == permission
                && (importer.node, importer.incarnation) == (node, incarnation)
        });
        let again = wish.resume == publication.number;
        Some(
            found
                .filter(|_| again)
                .ok_or(RsmError::SegmentNotPublished)?,
        )
    };
    Ok(Grant {
        export: handle,
        port: export.port,
        permission,
        base: export.base,
        binding: export.binding,
        number: publication.number,
        key: export.keys.get(permission.class()).copied().flatten(),
        importer,
        node,
        incarnation,
    })
}

/// Returns a connection that was requested on this link.
fn requesting_import(state: &mut State, link: Handle, handle: Handle) -> Option<&mut Import> {
    state
        .imports
        .get_mut(handle)
        .filter(|import| import.attach == Attach::Requested(link))
}

/// Returns a connection that is attached to this link.
fn attached_import(state: &mut State, link: Handle, handle: Handle) -> Option<&mut Import> {
    state
        .imports
        .get_mut(handle)
        .filter(|import| import.attach == Attach::Attached(link))
}

/// Returns a connection that this link may name.
fn importer_at(state: &mut State, link: Handle, handle: Handle) -> Option<&mut Importer> {
    state
        .importers
        .get_mut(handle)
        .filter(|importer| importer.link == link)
}

/// Counts a signal that has arrived, unless it must not add to a pending one.
///
/// Spec: RSMSG-02, RSMSG-04
fn count_signal(signals: &mut u32, no_accumulate: bool) {
    if !(no_accumulate && *signals != 0) {
        *signals = signals.saturating_add(1);
    }
}
