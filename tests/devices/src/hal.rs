//! Memory order between a driver and a device in the same program.
#![expect(unsafe_code, reason = "the device belongs to this crate")]

use core::fmt;
use core::sync::atomic::{Ordering, fence};

use backend_mmio::Hal;
use backend_mmio::cache::{CacheLines, LineSize, maintain};
use backend_mock::NodeOptions;
use dat_core::backend::{Backend, SyncDirection};

use crate::bad_cqe::draw;
use crate::connection_manager::{CmDevice, Devices};
use crate::lock::{Arc, Mutex, lock};

/// Barriers towards a model device on every processor, and caches that hide memory from it.
#[derive(Clone)]
pub struct ModelHal<D> {
    pub(crate) devices: D,
    pub(crate) device: usize,
    /// True if device and processor see the same consumer memory.
    pub(crate) coherent: bool,
    /// Count of random numbers drawn.
    pub(crate) drawn: Arc<Mutex<u32>>,
}

impl<D> fmt::Debug for ModelHal<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "host of device {}", self.device)
    }
}

// SAFETY: the device runs in threads of this program and its registers are calls. Among threads a
// full fence orders everything. The caches are those of the fabric, by line.
unsafe impl<D: Devices + Clone> Hal for ModelHal<D> {
    const COHERENT: bool = true;

    fn is_coherent(&self) -> bool {
        self.coherent
    }

    fn to_device() {
        fence(Ordering::SeqCst);
    }

    fn from_device() {
        fence(Ordering::SeqCst);
    }

    fn to_register() {
        fence(Ordering::SeqCst);
    }

    fn store_before_load() {
        fence(Ordering::SeqCst);
    }

    /// Returns the same sequence in every run, so that a run can be repeated.
    fn random(&self) -> Option<u32> {
        // Some processors of firmware have no atomic addition.
        let mut drawn = lock(&self.drawn);
        let mut state = (self.device as u64) << 32 | u64::from(*drawn);
        *drawn = drawn.wrapping_add(1);
        Some(draw(&mut state))
    }

    fn synchronise(&self, direction: SyncDirection, address: u64, length: u64) {
        fence(Ordering::SeqCst);
        let cache = ModelCache {
            hal: self,
            range: (address, length),
        };
        maintain(&cache, direction, address, length);
        fence(Ordering::SeqCst);
    }
}

/// Returns options of an adapter as a device: the driver maintains the caches for its buffers.
pub(crate) fn as_device(options: NodeOptions) -> NodeOptions {
    NodeOptions {
        maintains_buffers: false,
        ..options
    }
}

/// The caches of a host, by line, for one call of the driver.
///
/// The fabric keeps the device's view of each byte apart from the processor's. A line that is not
/// maintained stays as it is in both.
struct ModelCache<'h, D> {
    hal: &'h ModelHal<D>,
    /// First byte and length of the call's range, which is registered; its neighbours need not be.
    range: (u64, u64),
}

/// Bytes of a line.
const LINE: u64 = 64;

impl<D: Devices> ModelCache<'_, D> {
    fn maintain(&self, direction: SyncDirection, line: u64) {
        let (start, length) = self.range;
        let first = line.max(start);
        let end = line.saturating_add(LINE).min(start.saturating_add(length));
        let _gone = self.hal.devices.on(self.hal.device, |device| {
            let length = end.saturating_sub(first);
            device.adapter().sync(direction, first, length);
            Ok(())
        });
    }
}

impl<D: Devices> CacheLines for ModelCache<'_, D> {
    fn line_size(&self) -> LineSize {
        const SIZE: LineSize = match LineSize::new(LINE) {
            Some(size) => size,
            None => unreachable!(),
        };
        SIZE
    }

    fn clean(&self, line: u64) {
        self.maintain(SyncDirection::RdmaRead, line);
    }

    fn clean_and_invalidate(&self, line: u64) {
        self.maintain(SyncDirection::RdmaWrite, line);
    }

    fn barrier(&self) {
        fence(Ordering::SeqCst);
    }
}
