//! Reads descriptors and posts their requests to the fabric.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use backend_mmio::defs::mlx5::{
    BLOCK_UNITS, Control, ControlFlags, Data, InlineData, KeyUpdate, NextReceive, Opcode,
    RemoteAddress, doorbell,
};
use backend_mmio::mlx5::DeviceEvent;
use backend_mock::MockBackend;
use dat_core::backend::{
    Backend, BindRequest, DomainKey, ReceiveRequest, RegionKeys, RemoteRange, Segment, SendFlags,
    SendOperation, SendQueue, SendRequest, SyncDirection, WindowKey, WorkQueue, WorkSlot,
};
use dat_core::flags::MemoryPrivileges;

use crate::complete::Origin;
use crate::device::{Device, Pair, published, unit};
use crate::inline_memory::InlineMemory;

/// Keys of windows in the fabric, by the key that peers use.
pub(crate) type WindowKeys = BTreeMap<u32, u32>;

/// Error: the descriptor is invalid.
struct InvalidDescriptor;

/// A descriptor of a send queue.
struct Descriptor {
    control: Control,
    remote: Option<RemoteAddress>,
    update: Option<KeyUpdate>,
    data: Vec<Data>,
    /// Inline data.
    inline_data: Option<Vec<u8>>,
    /// True if it was read from the doorbell register.
    from_doorbell: bool,
}

impl Device {
    /// Reads all posted descriptors.
    pub(crate) fn fetch(&mut self, windows: &mut WindowKeys) {
        if self.halted {
            return;
        }
        fence(Ordering::Acquire);
        self.fetch_shared();
        let numbers: Vec<u32> = self.pairs.keys().copied().collect();
        for number in numbers {
            self.fetch_receives(number);
            self.fetch_sends(number, windows);
        }
    }

    fn fetch_shared(&mut self) {
        let memory = self.memory;
        for shared in self.shared.values_mut() {
            let spec = shared.spec;
            let count = published(&memory, spec.record, doorbell::RECEIVE, shared.read);
            for _ in 0..count {
                let first = shared.next_index * spec.units;
                let read = |index| unit(&memory, spec.ring, first + index);
                let Some(link) = read(0) else {
                    break;
                };
                let segments = receive_segments((1..spec.units).map_while(read));
                let token = Origin::Shared(shared.next_index as u16).token(0);
                // A queue of the fabric that has room and refuses is gone.
                let posted = shared.queue.post(&ReceiveRequest { token }, &segments);
                if posted.is_err() {
                    break;
                }
                shared.next_index = u32::from(NextReceive::decode(link).next) & (spec.entries - 1);
                shared.read = shared.read.wrapping_add(1);
            }
        }
    }

    fn fetch_receives(&mut self, number: u32) {
        let memory = self.memory;
        let Some(pair) = self.pairs.get_mut(&number) else {
            return;
        };
        let spec = pair.spec;
        let Some(queue) = &mut pair.receive else {
            return;
        };
        let count = published(&memory, spec.record, doorbell::RECEIVE, pair.receives_read);
        for _ in 0..count {
            let first = (pair.receives_read & (spec.receive_entries - 1)) * spec.receive_units;
            let read = |index| unit(&memory, spec.ring, first + index);
            let segments = receive_segments((0..spec.receive_units).map_while(read));
            let token = Origin::Receive(pair.receives_read as u16).token(number);
            // As in `fetch_shared`.
            if queue.post(&ReceiveRequest { token }, &segments).is_err() {
                break;
            }
            pair.receives_read = pair.receives_read.wrapping_add(1);
        }
    }

    /// Reads the posted requests of a queue pair as far as its state permits.
    pub(crate) fn fetch_sends(&mut self, number: u32, windows: &mut WindowKeys) {
        let Self {
            backend,
            burst,
            bursts,
            inline,
            pairs,
            memory,
            windows: known,
            events,
            ..
        } = self;
        let Some(pair) = pairs.get_mut(&number) else {
            return;
        };
        let record = pair.spec.record;
        while published(memory, record, doorbell::SEND, pair.sends_read) != 0 {
            let step = read_descriptor(memory, pair, number, *burst).and_then(|descriptor| {
                let from_doorbell = descriptor.from_doorbell;
                let blocks = u32::from(descriptor.control.units).div_ceil(BLOCK_UNITS);
                let posted = match descriptor.update {
                    Some(update) => bind(pair, number, &descriptor, update, known, windows)?,
                    None => {
                        if descriptor.inline_data.is_some() && pair.inline_data.is_none() {
                            let domain = DomainKey(pair.spec.domain as usize);
                            let created = InlineMemory::new(backend, domain, pair.spec.send_blocks);
                            pair.inline_data = Some(created.map_err(|_| InvalidDescriptor)?);
                        }
                        post(backend, pair, number, &descriptor, windows)?
                    }
                };
                if posted {
                    *bursts += u64::from(from_doorbell);
                    *inline += u64::from(descriptor.inline_data.is_some());
                }
                Ok(posted.then_some(blocks))
            });
            match step {
                Ok(Some(blocks)) => pair.sends_read = pair.sends_read.wrapping_add(blocks),
                // The queue pair cannot send yet.
                Ok(None) => return,
                Err(InvalidDescriptor) => {
                    events.push_back(DeviceEvent::QueuePairFailed(number));
                    return;
                }
            }
        }
    }
}

/// Returns the segments of a receive up to the entry that ends the list.
fn receive_segments(units: impl Iterator<Item = [u32; 4]>) -> Vec<Segment> {
    let entries = units.map(Data::decode);
    let used = entries.take_while(|entry| *entry != Data::END);
    used.map(segment).collect()
}

fn segment(entry: Data) -> Segment {
    Segment {
        address: entry.address,
        length: entry.length,
        key: entry.key,
    }
}

/// Returns the control unit of the descriptor that starts in a block.
pub(crate) fn control_at(
    memory: &backend_mmio::DmaView<'static>,
    pair: &Pair,
    block: u32,
) -> Option<Control> {
    let index = first_send_unit(pair) + (block & (pair.spec.send_blocks - 1)) * BLOCK_UNITS;
    unit(memory, pair.spec.ring, index).map(Control::decode)
}

fn first_send_unit(pair: &Pair) -> u32 {
    (pair.spec.receive_entries * pair.spec.receive_units).next_multiple_of(BLOCK_UNITS)
}

fn read_descriptor(
    memory: &backend_mmio::DmaView<'static>,
    pair: &Pair,
    number: u32,
    burst: Option<(u32, [u64; 8])>,
) -> Result<Descriptor, InvalidDescriptor> {
    let first = pair.sends_read * BLOCK_UNITS;
    let mask = pair.spec.send_blocks * BLOCK_UNITS - 1;
    let start = first_send_unit(pair);
    // The doorbell's block counts only if it is the next block to read.
    let burst = burst.filter(|(pair, _)| *pair == number);
    let burst = burst.map(|(_, block)| block).filter(|[first, ..]| {
        let control = [(*first >> 32) as u32, *first as u32, 0, 0];
        Control::decode(control).index == pair.sends_read as u16
    });
    let read = |index: u32| {
        if let (Some(block), 0..BLOCK_UNITS) = (burst, index) {
            let [high, low] = [2 * index, 2 * index + 1].map(|word| block[word as usize]);
            return Ok([
                (high >> 32) as u32,
                high as u32,
                (low >> 32) as u32,
                low as u32,
            ]);
        }
        let index = start + (first.wrapping_add(index) & mask);
        unit(memory, pair.spec.ring, index).ok_or(InvalidDescriptor)
    };
    let control = Control::decode(read(0)?);
    let completes = control.flags.has(ControlFlags::COMPLETE);
    let addressed = control.queue_pair == number && control.index == pair.sends_read as u16;
    if !addressed || !completes || control.units == 0 {
        return Err(InvalidDescriptor);
    }
    let mut next = 1;
    let remote = match control.opcode {
        Opcode::RDMA_WRITE | Opcode::RDMA_READ => {
            next += 1;
            Some(RemoteAddress::decode(read(1)?))
        }
        Opcode::SEND | Opcode::UPDATE_KEY => None,
        _ => return Err(InvalidDescriptor),
    };
    let mut update = None;
    if control.opcode == Opcode::UPDATE_KEY {
        let mut units = [[0; 4]; KeyUpdate::UNITS];
        for unit in &mut units {
            *unit = read(next)?;
            next += 1;
        }
        update = Some(KeyUpdate::decode(units).ok_or(InvalidDescriptor)?);
    }
    let units = u32::from(control.units);
    let first = if next < units { read(next)? } else { [0; 4] };
    let inline = InlineData::decode(first[0]).filter(|_| update.is_none());
    let mut descriptor = Descriptor {
        control,
        remote,
        update,
        data: Vec::new(),
        inline_data: None,
        from_doorbell: burst.is_some(),
    };
    if let Some(inline) = inline {
        if next + inline.units() != units || control.opcode == Opcode::RDMA_READ {
            return Err(InvalidDescriptor);
        }
        let words = (next..units).map(read).collect::<Result<Vec<_>, _>>()?;
        let bytes = words.iter().flatten().flat_map(|word| word.to_be_bytes());
        let bytes = bytes.skip(4).take(inline.length as usize);
        descriptor.inline_data = Some(bytes.collect());
    } else {
        let data = (next..units).map(|index| Ok(Data::decode(read(index)?)));
        descriptor.data = data.collect::<Result<_, _>>()?;
    }
    Ok(descriptor)
}

fn flags(control: &Control) -> SendFlags {
    let mut flags = SendFlags::empty();
    flags.set(
        SendFlags::FENCE,
        control.flags.fence() == ControlFlags::FENCE,
    );
    flags.set(
        SendFlags::SOLICITED,
        control.flags.has(ControlFlags::SOLICITED),
    );
    flags
}

/// Returns true if a descriptor starts only after the earlier binds have completed.
fn waits_for_binds(control: &Control) -> bool {
    matches!(
        control.flags.fence(),
        ControlFlags::SMALL_FENCE | ControlFlags::FENCE
    )
}

/// Posts a request to the fabric; returns false if the queue pair cannot send yet.
fn post(
    backend: &mut MockBackend,
    pair: &mut Pair,
    number: u32,
    descriptor: &Descriptor,
    windows: &WindowKeys,
) -> Result<bool, InvalidDescriptor> {
    let range = descriptor.remote.map(|remote| RemoteRange {
        address: remote.address,
        key: windows.get(&remote.key).copied().unwrap_or(remote.key),
    });
    let operation = match (descriptor.control.opcode, range) {
        (Opcode::RDMA_WRITE, Some(range)) => SendOperation::RdmaWrite(range),
        (Opcode::RDMA_READ, Some(range)) => SendOperation::RdmaRead(range),
        _ => SendOperation::Send,
    };
    let block = u32::from(descriptor.control.index) & (pair.spec.send_blocks - 1);
    let inline_data = match (&descriptor.inline_data, &pair.inline_data) {
        (Some(data), Some(inline_data)) => Some(
            inline_data
                .store_data(block, data)
                .ok_or(InvalidDescriptor)?,
        ),
        _ => None,
    };
    let data: Vec<Segment> = match inline_data {
        Some(segment) => {
            // Memory of the device, which no cache holds.
            backend.sync(
                SyncDirection::RdmaRead,
                segment.address,
                segment.length.into(),
            );
            vec![segment]
        }
        None => descriptor.data.iter().copied().map(segment).collect(),
    };
    if !waits_for_binds(&descriptor.control) {
        pair.send.overtake_binds();
    }
    let request = SendRequest {
        token: Origin::Request(descriptor.control.index).token(number),
        operation,
        flags: flags(&descriptor.control),
    };
    let mut slot = pair
        .send
        .reserve(&request, data.len())
        .ok_or(InvalidDescriptor)?;
    let mut length = 0_u32;
    for segment in data {
        slot.segment(segment);
        length = length.wrapping_add(segment.length);
    }
    slot.commit(length).map_err(|_| InvalidDescriptor)?;
    Ok(pair.send.ring().is_ok())
}

/// Posts a bind to the fabric; returns false if the queue pair cannot bind yet.
fn bind(
    pair: &mut Pair,
    number: u32,
    descriptor: &Descriptor,
    update: KeyUpdate,
    known: &BTreeMap<u32, usize>,
    windows: &mut WindowKeys,
) -> Result<bool, InvalidDescriptor> {
    let old = descriptor.control.immediate;
    let window = *known.get(&(old >> 8)).ok_or(InvalidDescriptor)?;
    let mut privileges = MemoryPrivileges::empty();
    let mut range = (0, 0);
    let mut region = RegionKeys::default();
    if let Some(opens) = update.opens {
        privileges.set(MemoryPrivileges::REMOTE_READ, opens.remote_read);
        privileges.set(MemoryPrivileges::REMOTE_WRITE, opens.remote_write);
        range = (opens.address, opens.length);
        let memory = descriptor.data.first().ok_or(InvalidDescriptor)?;
        region.local = memory.key;
    }
    let request = BindRequest {
        token: Origin::Request(descriptor.control.index).token(number),
        window: WindowKey(window),
        region,
        address: range.0,
        length: range.1,
        privileges,
        flags: flags(&descriptor.control),
        is_only: false,
    };
    if !waits_for_binds(&descriptor.control) {
        pair.send.overtake_binds();
    }
    match pair.send.bind(&request) {
        Ok(key) => {
            if update.opens.is_some() {
                windows.insert(old & !0xFF | u32::from(update.variant), key);
            }
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}
