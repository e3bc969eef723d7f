//! Topologies of the interconnect, as copies for C.

use std::collections::BTreeMap;
use std::ptr;

use dat_core::attributes::IaAddress;
use dat_rsm::{ConnectionState, Result, RsmError};

use super::process::{Controller, Process, with_site};
use super::{Code, check_heap, code, required_handle};
use crate::boundary::{
    ConnectionsHeader, Consumer, Inherited, NAME_BYTES, Out, RemoteController, TopologyHeader,
};
use crate::handles::CHandle;

/// Topologies that were returned, by address; no others are freed.
static GIVEN: Inherited<BTreeMap<usize, Box<[u64]>>> = Inherited::new(BTreeMap::new());

/// A controller and the nodes that it reaches.
struct Local {
    name: &'static str,
    address: u64,
    remotes: Vec<Remote>,
}

struct Remote {
    node: u32,
    name: &'static str,
    address: u64,
    state: ConnectionState,
}

/// Returns the hardware address as one number.
fn hardware(address: IaAddress) -> u64 {
    match address {
        IaAddress::V4(address, _) => u32::from_be_bytes(address).into(),
        IaAddress::V6(address, _, _) => {
            let [_, _, _, _, _, _, _, _, last @ ..] = address;
            u64::from_be_bytes(last)
        }
        IaAddress::Node(node) => node,
    }
}

/// Returns the state of a controller, from its engine if open, or else as configured.
fn look_at(controller: &'static Controller, node: u32) -> Result<Local> {
    if let Some(opened) = controller.opened() {
        let topology = with_site!(opened, site => site.engine.topology())?;
        let mut found = topology.controllers.into_iter();
        let known = found.next().ok_or(RsmError::InternalError)?;
        return Ok(Local {
            name: known.name,
            address: hardware(known.address),
            remotes: known
                .remotes
                .into_iter()
                .map(|remote| Remote {
                    node: remote.node,
                    name: remote.name,
                    address: hardware(remote.address),
                    state: remote.state,
                })
                .collect(),
        });
    }
    let own = controller.nodes.iter().find(|entry| entry.node == node);
    let state = if controller.active() {
        ConnectionState::Active
    } else {
        ConnectionState::Down
    };
    let remotes = controller.nodes.iter().map(|entry| Remote {
        node: entry.node,
        name: entry.controller,
        address: hardware(entry.address),
        state,
    });
    Ok(Local {
        name: controller.name,
        address: own.map_or(0, |own| hardware(own.address)),
        remotes: remotes.collect(),
    })
}

/// Bytes of fields in their order, each aligned to its size.
#[derive(Default)]
struct Record(Vec<u8>);

impl Record {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.resize(self.0.len().next_multiple_of(N), 0);
        self.0.extend(bytes);
    }

    fn name(&mut self, name: &str) {
        let end = self.0.len() + NAME_BYTES;
        // A name is shorter than its field, so that it ends with a zero byte.
        self.0.extend(name.bytes().take(NAME_BYTES - 1));
        self.0.resize(end, 0);
    }

    /// Pads a structure that began at `begin` to its size.
    fn end(&mut self, begin: usize, size: usize) {
        self.0.resize(begin + size, 0);
    }
}

/// Builds a topology as one block; also returns the offsets of the controllers.
///
/// Addresses of the controllers follow the header. They are stored once the address of the block is
/// known.
///
/// Spec: RSMTP-01, RSMTP-02
fn picture(node: u32, controllers: &[Local]) -> (Record, Vec<usize>) {
    let mut record = Record::default();
    record.put(node.to_ne_bytes());
    record.put((controllers.len() as u32).to_ne_bytes());
    record.end(
        0,
        size_of::<TopologyHeader>() + controllers.len().max(1) * 8,
    );
    let mut offsets = Vec::new();
    for controller in controllers {
        let begin = record.0.len();
        offsets.push(begin);
        record.name(controller.name);
        record.put(controller.address.to_ne_bytes());
        record.put((controller.remotes.len() as u32).to_ne_bytes());
        record.end(begin, size_of::<ConnectionsHeader>());
        for remote in &controller.remotes {
            let begin = record.0.len();
            record.put(remote.node.to_ne_bytes());
            record.name(remote.name);
            record.put(remote.address.to_ne_bytes());
            record.put((remote.state as u32).to_ne_bytes());
            record.end(begin, size_of::<RemoteController>());
        }
    }
    (record, offsets)
}

/// `rsm_get_interconnect_topology`.
///
/// Spec: RSMTP-01, RSMTP-02, RSMTP-03, RSMGEN-06
pub fn get_topology(topology: Out<CHandle>) -> Code {
    code(|| {
        let output = required_handle(topology, RsmError::BadTopologyPointer)?;
        check_heap()?;
        let process = Process::this()?;
        if let Some(fault) = process.fault {
            return Err(fault);
        }
        let look_at = |controller| look_at(controller, process.node);
        let controllers = process.controllers.iter().map(look_at);
        let controllers: Vec<Local> = controllers.collect::<Result<_>>()?;
        let (record, offsets) = picture(process.node, &controllers);
        let words = record.0.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(bytes) {
                *to = *from;
            }
            u64::from_ne_bytes(word)
        });
        let mut words: Box<[u64]> = words.collect();
        let base = ptr::from_mut(&mut words[..])
            .cast::<u64>()
            .expose_provenance();
        for (word, offset) in words.iter_mut().skip(1).zip(offsets) {
            *word = base.wrapping_add(offset) as u64;
        }
        GIVEN.lock().insert(base, words);
        output.put(CHandle::from_address(base));
        Ok(())
    })
}

/// `rsm_free_interconnect_topology`. Ignores an address that was not returned.
///
/// Spec: RSMTP-04
pub fn free_topology(topology: Consumer) {
    if !topology.is_null() {
        drop(GIVEN.lock().remove(&topology.address()));
    }
}
