//! A node of remote shared memory, in its process.

use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use backend_roce::RoceBackend;
use dat_core::attributes::IaAddress;
use dat_core::event::ThreadWait;
use dat_core::memory::Region;
use dat_core::sync::HostLock;
use dat_rsm::{
    AccessEntry, ControllerConfig, ControllerId, ExportFlags, ExportId, ImportId, LocalAccess,
    LocalMemoryId, NodeEntry, NodeId, Options, Permission, PutEntry, Rsm, RsmError, SegmentId,
    Source,
};
use dat_tests::fixture::{Memory, Testbed as _, open};

use crate::bed::ProcessBed;
use crate::side::Side;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// The first id that tests publish under.
pub(crate) const SEGMENT: SegmentId = 0x60_0000;
/// The name of the controller of every node.
const CONTROLLER: &str = "rsm0";

type Engine = Rsm<'static, RoceBackend, HostLock>;

/// The node of a side; the other sides are the other nodes.
pub(crate) struct Node {
    pub(crate) engine: Rc<Engine>,
    pub(crate) controller: ControllerId,
}

/// Returns the number of the node of a side.
pub(crate) fn node_number(side: usize) -> NodeId {
    side as NodeId + 1
}

impl Node {
    /// Makes the node of a side; it makes progress whenever the side waits for another one.
    ///
    /// Returns when all sides have made theirs.
    pub(crate) fn new(side: &Side, sides: usize) -> Self {
        // A busy machine may keep the other process from answering.
        Self::on(side.net.bed.device(), side, sides, 20_000_000)
    }

    /// As `new`, on a device that soon notices the death of a peer, and with a short time limit.
    pub(crate) fn alert(side: &Side, sides: usize) -> Self {
        Self::on(side.net.bed.alert_device(), side, sides, 5_000_000)
    }

    fn on(device: RoceBackend, side: &Side, sides: usize, connect_timeout: u32) -> Self {
        let entry = |number| NodeEntry {
            node: node_number(number),
            controller: CONTROLLER,
            address: IaAddress::V4([127, 0, 0, 1], 0),
            qualifier: side.qualifier(number),
        };
        let config = ControllerConfig {
            name: CONTROLLER,
            ia: open::<ProcessBed>(device),
            qualifier: side.qualifier(side.number),
            nodes: (0..sides).map(entry).collect(),
        };
        let number = node_number(side.number);
        let options = Options {
            default_access: 0o666,
            connect_timeout,
            ..Options::new(number, u64::from(std::process::id()))
        };
        let engine = Rc::new(Rsm::new(options, vec![config]).expect("an engine"));
        let controller = engine.get_controller(Some(CONTROLLER));
        let controller = controller.expect("a controller");
        let runs = Rc::clone(&engine);
        side.meanwhile(move |now| {
            runs.progress(now);
        });
        side.meet("the nodes");
        Self { engine, controller }
    }

    /// Returns a wait of a call.
    pub(crate) fn wait() -> ThreadWait {
        ThreadWait::new()
    }

    /// Exports zeroed pages, published under an id.
    pub(crate) fn export(
        &self,
        pages: usize,
        id: SegmentId,
        access: &[AccessEntry],
    ) -> (ExportId, &'static [AtomicU8]) {
        let memory = pages_of(pages);
        let region = Region::from_static(memory);
        let flags = ExportFlags::empty();
        let made = self.engine.export_create(self.controller, region, flags);
        let export = made.expect("a segment");
        let published = self.engine.export_publish(export, id, access);
        assert_eq!(published, Ok(id));
        (export, memory)
    }

    /// Connects to a segment of the node of a side.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn import(
        &self,
        side: usize,
        id: SegmentId,
        permission: Permission,
    ) -> Result<ImportId, RsmError> {
        let (node, mut wait) = (node_number(side), Self::wait());
        self.engine
            .import_connect(self.controller, node, id, permission, &mut wait)
    }

    /// Registers local memory with a pattern.
    pub(crate) fn local(&self, length: usize, seed: u8) -> (LocalMemoryId, &'static [AtomicU8]) {
        let memory = &pages_of(length.div_ceil(PAGE))[..length];
        for (cell, byte) in memory.iter().zip(pattern(seed, length)) {
            cell.store(byte, Ordering::Relaxed);
        }
        let region = Region::from_static(memory);
        let access = LocalAccess::ReadWrite;
        let made = self
            .engine
            .create_local_memory(self.controller, region, access);
        (made.expect("local memory"), memory)
    }
}

/// Leaks zeroed memory that starts at a page boundary.
fn pages_of(count: usize) -> &'static [AtomicU8] {
    let bytes = Memory::allocate((count + 1) * PAGE);
    let skip = bytes.as_ptr().align_offset(PAGE);
    &bytes[skip..][..count * PAGE]
}

/// Returns bytes that differ from byte to byte and from seed to seed; none is 0.
pub(crate) fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| ((at * 7 + usize::from(seed) * 31) % 255) as u8 + 1)
        .collect()
}

pub(crate) fn load(memory: &[AtomicU8]) -> Vec<u8> {
    let cells = memory.iter();
    cells.map(|cell| cell.load(Ordering::Relaxed)).collect()
}

/// Returns an entry that puts a part of registered memory.
pub(crate) fn put(
    local: LocalMemoryId,
    local_offset: u64,
    remote_offset: u64,
    length: u64,
) -> PutEntry<'static> {
    PutEntry {
        local: Source::Handle(local),
        local_offset,
        remote_offset,
        length,
    }
}
