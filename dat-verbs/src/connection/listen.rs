//! Listening identifiers, and the requests that they get.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::result::Result;
use core::sync::atomic::Ordering;
use core::time::Duration;

use dat_core::backend::{BackendError, ControlEvent, ListenerKey};
use nix::errno::Errno;

use super::channel::{News, acknowledge};
use super::devices::shared;
use super::id::{Id, Phase, keep, make, next_of, raise_about, rdma_destroy_id, rdma_migrate_id};
use super::pair;
use super::resolve::{bind, set_addresses, set_device};
use crate::adapter::Subject;
use crate::boundary::layout::{RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_TCP};
use crate::boundary::{Address, Handle, Out};
use crate::errors::{ask_for_memory, done, refused};

/// Requests of a listener that wait, as in the kernel.
const MOST_REQUESTS: u32 = 1024;

/// Attempts to take a port that is in use, and the pause between them.
const MOST_TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Makes an identifier listen; it is bound first if it was not.
///
/// Requests beyond the backlog, of those that the program has not taken, are refused.
pub(crate) extern "C" fn rdma_listen(id: Handle<Id>, backlog: c_int) -> c_int {
    done(|| {
        ask_for_memory()?;
        let own = id.get()?;
        // A request may come in a call of the adapter, which cannot make them then.
        shared()?;
        if own.state().phase == Phase::New {
            bind(id, UNSPECIFIED)?;
        }
        let (local, options) = {
            let state = own.state();
            let local = state.local.filter(|_| state.phase == Phase::Bound);
            (local.ok_or(Errno::EINVAL)?, state.options)
        };
        let (port, address) = (local.port(), options.listens_at(local.ip()));
        // The adapter takes the port in their place, at all of its addresses.
        own.adapter.leave_ports(|address| address.port() == port);
        let backlog = u32::try_from(backlog).ok().filter(|backlog| *backlog > 0);
        let places = backlog.map_or(MOST_REQUESTS, |backlog| backlog.min(MOST_REQUESTS));
        own.places.store(places, Ordering::Relaxed);
        // Before the first request can come.
        let notify = move |event: &_| request(id, event);
        let subject = Subject::Listener(own.token);
        own.adapter.receive(subject, Box::new(notify));
        match listen(own, port, address) {
            Ok(listener) => {
                own.state().phase = Phase::Listening(listener);
                Ok(())
            }
            Err(error) => {
                own.adapter.forget(subject);
                Err(refused(error))
            }
        }
    })
}

/// Listens at a port that this process has.
///
/// A process that another thread makes has a copy of the port until it runs its program: then the
/// port seems to be in use.
fn listen(own: &Id, port: u16, address: Option<IpAddr>) -> Result<ListenerKey, BackendError> {
    let try_once = || own.adapter.device.listen(own.token, port, address);
    for _ in 1..MOST_TRIES {
        match try_once() {
            Err(BackendError::QualifierInUse) => std::thread::sleep(PAUSE),
            listens => return listens,
        }
    }
    try_once()
}

/// Makes the identifier of a request, and tells of it.
///
/// Without a place, memory or descriptors for it, the attempt of the peer is refused.
fn request(listener: Handle<Id>, event: &ControlEvent) {
    let ControlEvent::ConnectionRequest {
        request,
        local,
        remote,
        private_data,
        ..
    } = event
    else {
        return;
    };
    let Ok(own) = listener.get() else {
        return;
    };
    if !own.take_place() {
        return own.adapter.device.refuse(*request);
    }
    let made = (|| {
        let c = listener.read()?;
        let port = own.state().local.map_or(0, |local| local.port());
        let id = make(Handle::at(c.channel), Address(c.context), RDMA_PS_TCP)?;
        set_device(id).inspect_err(|_| {
            rdma_destroy_id(id);
        })?;
        let mut local = local.socket_address().unwrap_or(UNSPECIFIED);
        local.set_port(port);
        let terms = own.adapter.device.request_terms(*request);
        let mut remote = remote.socket_address().unwrap_or(UNSPECIFIED);
        if let Some(terms) = terms {
            remote.set_port(terms.asks_from);
        }
        {
            let mut state = id.get()?.state();
            (state.local, state.remote) = (Some(local), Some(remote));
            state.phase = Phase::Requested(*request);
        }
        set_addresses(id, local, remote);
        let news = News {
            data: private_data.as_slice(),
            depths: terms.map_or((0, 0), |terms| terms.depths),
            ..News::of(RDMA_CM_EVENT_CONNECT_REQUEST)
        };
        raise_about(listener, id, &news);
        Ok::<_, Errno>(())
    })();
    if made.is_err() {
        own.places.fetch_add(1, Ordering::Relaxed);
        own.adapter.device.refuse(*request);
    }
}

/// Waits for a request at an identifier in synchronous mode.
pub(crate) extern "C" fn rdma_get_request(listener: Handle<Id>, to: Out<Handle<Id>>) -> c_int {
    done(|| {
        let own = listener.get()?;
        let event = next_of(listener)?;
        let c = event.read()?;
        if c.event != RDMA_CM_EVENT_CONNECT_REQUEST {
            acknowledge(event)?;
            return Err(Errno::EINVAL);
        }
        // Its calls wait, too, and its event stays with it.
        let id = Handle::at(c.id);
        if rdma_migrate_id(id, Handle::NULL) != 0 {
            let error = Errno::last();
            // Nobody else knows the request.
            acknowledge(event)?;
            rdma_destroy_id(id);
            return Err(error);
        }
        keep(id, event);
        let wanted = own.state().for_requests;
        if let Some((domain, mut wanted)) = wanted {
            pair::make(id, domain, &mut wanted).inspect_err(|_| {
                rdma_destroy_id(id);
            })?;
        }
        to.set(id);
        Ok(())
    })
}
