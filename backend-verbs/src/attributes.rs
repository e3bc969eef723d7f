//! Attributes of adapters and of the provider.

use std::collections::BTreeSet;
use std::sync::{Mutex, TryLockError};

use dat_core::attributes::{IaAddress, IaAttributes, NamedAttribute, ProviderAttributes};
use dat_core::flags::{
    CompletionFlags, EpCreator, IovOwnership, MemoryTypes, PzSupport, QualityOfService,
};

use crate::connection::PRIVATE_DATA_SIZE;
use crate::device::Port;

/// Longest transfer in bytes if the port reports none; verbs promises it everywhere.
const TRANSFER: u32 = 1 << 31;

/// Vendor number of Linux's soft-RoCE driver.
const SOFT_ROCE: u32 = 0xFF_FFFF;

/// Returns a copy of `name` that lives for ever, since attributes borrow it.
///
/// Each name is kept once, unless two threads call at the same time.
fn lasting(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    // In a child of `fork`, a thread that no longer exists may hold the lock for ever.
    let mut names = match NAMES.try_lock() {
        Ok(names) => Some(names),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    if let Some(known) = names.as_ref().and_then(|names| names.get(name)) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into());
    if let Some(names) = &mut names {
        names.insert(kept);
    }
    kept
}

fn vendor(number: u32) -> String {
    match number {
        0x02C9 => "Mellanox".to_owned(),
        0x14E4 => "Broadcom".to_owned(),
        0x1425 => "Chelsio".to_owned(),
        0x1D0F => "Amazon".to_owned(),
        0x8086 => "Intel".to_owned(),
        SOFT_ROCE => "soft-RoCE".to_owned(),
        0 => "unnamed".to_owned(),
        other => format!("{other:#06x}"),
    }
}

/// Returns the first two numbers in a version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Limits a depth to a byte, as it travels on the wire.
fn depth(reported: i32) -> i32 {
    reported.clamp(0, i32::from(u8::MAX))
}

/// Returns the packet length under the attribute name that InfiniBand programs look for.
const fn packet(reported: u32) -> &'static [NamedAttribute] {
    const fn bytes(value: &'static str) -> NamedAttribute {
        NamedAttribute {
            name: "DAT_IB_TRANSPORT_MTU",
            value,
        }
    }
    match reported {
        1 => const { &[bytes("256")] },
        2 => const { &[bytes("512")] },
        3 => const { &[bytes("1024")] },
        4 => const { &[bytes("2048")] },
        5 => const { &[bytes("4096")] },
        _ => &[],
    }
}

/// Returns the attributes of an adapter (`Spec: IAQ-03, IAQ-04`).
pub(crate) fn adapter(port: &Port) -> IaAttributes {
    let limits = &port.limits;
    let (major, minor) = version(&limits.firmware);
    let transfer = u64::from(match port.state.message_bytes {
        0 => TRANSFER,
        reported => reported,
    });
    let windows = limits.windows_type_1 || limits.windows_type_2;
    let segments = limits.segments;
    IaAttributes {
        adapter_name: lasting(&port.name),
        vendor_name: lasting(&vendor(limits.vendor)),
        hardware_version_major: limits.part,
        hardware_version_minor: limits.hardware,
        firmware_version_major: major,
        firmware_version_minor: minor,
        ia_address: port
            .addresses
            .first()
            .map_or(IaAddress::Node(0), |&address| IaAddress::from(address)),
        max_eps: limits.queue_pairs,
        max_dto_per_ep: limits.work_requests,
        max_rdma_read_per_ep_in: depth(limits.reads_in),
        max_rdma_read_per_ep_out: depth(limits.reads_out),
        max_evds: limits.completion_queues,
        max_evd_qlen: limits.completions,
        max_iov_segments_per_dto: segments,
        max_lmrs: limits.regions,
        max_lmr_block_size: limits.region_bytes,
        max_pzs: limits.domains,
        max_message_size: transfer,
        max_rdma_size: transfer,
        max_rmrs: if windows { limits.windows } else { 0 },
        max_srqs: limits.shared_receive_queues,
        max_ep_per_srq: limits.queue_pairs,
        max_recv_per_srq: limits.shared_buffers,
        max_iov_segments_per_rdma_read: match limits.read_segments {
            reported if reported > 0 => reported.min(segments),
            _ => segments,
        },
        max_iov_segments_per_rdma_write: segments,
        max_rdma_read_in: limits.reads_in_total,
        max_rdma_read_out: depth(limits.reads_out).saturating_mul(limits.queue_pairs),
        max_rdma_read_per_ep_in_guaranteed: false,
        ..IaAttributes::DEFAULT
    }
}

/// Returns the attributes of the provider (`Spec: IAQ-05` to `IAQ-10`).
pub(crate) fn provider(port: &Port) -> ProviderAttributes {
    ProviderAttributes {
        provider_name: "verbs",
        provider_version_major: 0,
        provider_version_minor: 1,
        dapl_version_major: 1,
        dapl_version_minor: 2,
        lmr_mem_types_supported: MemoryTypes::all(),
        iov_ownership_on_return: IovOwnership::Consumer,
        qos_supported: QualityOfService::BEST_EFFORT,
        completion_flags_supported: CompletionFlags::MANDATORY,
        is_thread_safe: true,
        max_private_data_size: PRIVATE_DATA_SIZE,
        supports_multipath: false,
        ep_creator: EpCreator::IfAsked,
        pz_support: PzSupport::Shareable,
        optimal_buffer_alignment: 64,
        evd_stream_merging_supported: ProviderAttributes::MERGE_ALL,
        srq_supported: port.limits.shared_receive_queues > 0,
        // Only the low watermark.
        srq_watermarks_supported: 1,
        // Soft-RoCE looks up the buffers of a shared queue in the endpoint's zone.
        srq_ep_pz_difference_supported: port.limits.vendor != SOFT_ROCE,
        // The core counts them.
        srq_info_supported: 1,
        ep_recv_info_supported: 0,
        // Host devices are cache coherent.
        lmr_sync_req: false,
        dto_async_return_guaranteed: true,
        rdma_write_for_rdma_read_req: port.is_iwarp(),
        provider_specific_attributes: packet(port.state.packet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_stored_once() {
        let first = lasting(&String::from("rxe0"));
        let second = lasting(&String::from("rxe0"));
        assert!(std::ptr::eq(first, second));
    }

    /// Spec: IAQ-11
    #[test]
    fn the_packet_size_is_a_named_attribute() {
        for (reported, expected) in [
            (1, "256"),
            (2, "512"),
            (3, "1024"),
            (4, "2048"),
            (5, "4096"),
        ] {
            let [pair] = packet(reported) else {
                panic!("one pair is expected");
            };
            assert_eq!((pair.name, pair.value), ("DAT_IB_TRANSPORT_MTU", expected));
        }
        assert!(packet(0).is_empty() && packet(6).is_empty());
    }

    #[test]
    fn the_numeric_start_of_a_version_is_read() {
        assert_eq!(version("16.35.2000"), (16, 35));
        assert_eq!(version("v7"), (7, 0));
        assert_eq!(version(""), (0, 0));
    }
}
