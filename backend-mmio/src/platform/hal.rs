//! Memory shared with the device, and barriers for it; contains `unsafe` code.

use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
use core::sync::atomic::{compiler_fence, fence};

use dat_core::backend::SyncDirection;
use dat_core::sync::copy_from_shared;

/// Barriers between processor and device, named by purpose, and cache maintenance.
///
/// # Safety
/// The driver hands descriptors to the device with these barriers. A barrier that does less than
/// documented lets the device read a half-written descriptor and then access memory that no request
/// names.
#[expect(unsafe_code)]
// UNSAFETY: the compiler cannot check how a bus orders accesses.
pub unsafe trait Hal: Clone {
    /// True if device and processor see the same memory without maintenance.
    const COHERENT: bool;

    /// Returns the coherence of this instance, for types that serve several platforms.
    #[inline]
    fn is_coherent(&self) -> bool {
        Self::COHERENT
    }

    /// Makes earlier stores to memory visible to a device that sees later stores.
    fn to_device();

    /// Orders later loads after earlier loads from memory.
    fn from_device();

    /// Makes earlier stores to memory visible to a device that sees a later register write.
    fn to_register();

    /// Completes earlier stores to memory before later loads.
    fn store_before_load();

    /// As [`to_register`](Self::to_register), for a register mapped write-combining.
    ///
    /// The processor gathers stores to such a register. They pass earlier stores to memory unless a
    /// fence prevents it.
    fn to_gathered_register() {
        Self::store_before_load();
        Self::to_register();
    }

    /// Sends earlier register stores to the device, including gathered ones.
    fn flush_register() {
        Self::store_before_load();
    }

    /// Returns a random number that peers cannot guess, if the platform has a source.
    ///
    /// The first key and the step of a window's keys come from it. Without a source, the default,
    /// each key is the previous one plus 1.
    fn random(&self) -> Option<u32> {
        None
    }

    /// Maintains the caches for consumer memory, on platforms that are not coherent.
    ///
    /// The maintenance is complete on return.
    fn synchronise(&self, direction: SyncDirection, address: u64, length: u64);
}

/// Barriers for x86, where devices are cache-coherent.
///
/// Stores to memory and then to an uncached register stay in order without a barrier, and so do
/// loads. Stores to a write-combining window do not, and get a fence. On 64-bit Arm and RISC-V a
/// type of the same name uses the barrier instructions of those processors. Other processors have
/// no such type: no fence of the language orders memory before a register, so the platform names
/// the instruction.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct CoherentHal;

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[expect(unsafe_code)]
// SAFETY: x86 keeps stores in order, and loads in order, for memory and uncached registers. A load
// that must not overtake a store gets a full fence.
unsafe impl Hal for CoherentHal {
    const COHERENT: bool = true;

    #[inline]
    fn to_device() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn from_device() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn to_register() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn to_gathered_register() {
        store_fence();
    }

    #[inline]
    fn flush_register() {
        store_fence();
    }

    #[inline]
    fn store_before_load() {
        fence(Ordering::SeqCst);
    }

    /// Reads the processor's random number generator (`RDRAND`), if present.
    fn random(&self) -> Option<u32> {
        #[cfg(target_arch = "x86")]
        use core::arch::x86 as processor;
        #[cfg(target_arch = "x86_64")]
        use core::arch::x86_64 as processor;

        const RDRAND: u32 = 1 << 30;
        /// Attempts until the source counts as exhausted, by the processor's manual.
        const TRIES: u32 = 10;
        #[target_feature(enable = "rdrand")]
        fn draw() -> Option<u32> {
            (0..TRIES).find_map(|_| {
                let mut drawn = 0;
                #[expect(unused_unsafe, reason = "older compilers require it")]
                // SAFETY: callers ensure that the processor has the instruction.
                let done = unsafe { processor::_rdrand32_step(&mut drawn) };
                (done == 1).then_some(drawn)
            })
        }

        #[expect(unused_unsafe, reason = "older compilers require it")]
        // SAFETY: every processor that this project supports has the instruction.
        let features = unsafe { processor::__cpuid(1) };
        if features.ecx & RDRAND == 0 {
            return None;
        }
        // SAFETY: `cpuid` reported that the processor has the instruction.
        unsafe { draw() }
    }

    fn synchronise(&self, _direction: SyncDirection, _address: u64, _length: u64) {
        fence(Ordering::SeqCst);
    }
}

/// Orders all earlier stores before all later ones, and flushes gathered stores.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[inline]
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code)]
    // SAFETY: every 64-bit processor has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    // Compiles to a locked instruction or `mfence`, which older processors have.
    #[cfg(target_arch = "x86")]
    fence(Ordering::SeqCst);
}

/// A big-endian 32-bit word that the device may read or write at any time.
///
/// Accesses are only whole loads and whole stores, never read-modify-write: devices do not take
/// part in atomic updates.
#[repr(transparent)]
pub struct DeviceWord(AtomicU32);

impl DeviceWord {
    /// Creates a word of zeros.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Reads the number once.
    ///
    /// The load is atomic, as is [`store`](Self::store): a device in software is another thread.
    #[inline]
    #[must_use]
    pub fn load(&self) -> u32 {
        u32::from_be(self.0.load(Ordering::Relaxed))
    }

    /// Writes a number.
    #[inline]
    pub fn store(&self, value: u32) {
        self.0.store(value.to_be(), Ordering::Relaxed);
    }
}

impl Default for DeviceWord {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for DeviceWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#010x}", self.load())
    }
}

/// Reads up to 4 bytes of consumer memory that others may be writing.
///
/// Missing bytes are 0.
///
/// # Safety
/// The first `bytes` bytes at the address, at most 4, lie in a registered region and stay
/// registered during the call.
#[expect(unsafe_code)]
// UNSAFETY: the function cannot check the memory at an address.
pub(crate) unsafe fn read_consumer(address: u64, bytes: u32) -> u32 {
    let mut read = [0; 4];
    // Registered memory has exposed its provenance, which may be that of a shared borrow. A
    // reference to an atomic would claim the right to write, so the copy takes the raw pointer.
    let from = core::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the caller guarantees that the bytes exist; others access them with byte atomics.
    unsafe { copy_from_shared(from, read.as_mut_ptr(), read.len().min(bytes as usize)) };
    u32::from_be_bytes(read)
}

/// 16 bytes of memory shared with the device, the unit of descriptors.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct DeviceUnit([DeviceWord; 4]);

impl DeviceUnit {
    /// Creates a unit of zeros.
    pub const fn new() -> Self {
        Self([const { DeviceWord::new() }; 4])
    }

    /// Stores four numbers, in any order.
    ///
    /// The device learns of them from a later store, after a barrier. Each word is a separate
    /// store: a store of two words would race with loads of one.
    #[inline]
    pub(crate) fn put(&self, numbers: [u32; 4]) {
        // Without a loop, which a compiler for size keeps.
        let ([a, b, c, d], [first, second, third, fourth]) = (&self.0, numbers);
        a.store(first);
        b.store(second);
        c.store(third);
        d.store(fourth);
    }
}

impl Deref for DeviceUnit {
    type Target = [DeviceWord; 4];

    #[inline]
    fn deref(&self) -> &[DeviceWord; 4] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a DeviceUnit {
    type Item = &'a DeviceWord;
    type IntoIter = core::slice::Iter<'a, DeviceWord>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Memory shared with the device, owned by one driver.
///
/// Neither `Copy` nor `Clone`: two drivers with the same memory would overwrite each other's
/// descriptors. A device in software accesses the memory through a [`DmaView`].
///
/// ```compile_fail,E0382
/// use backend_mmio::DmaMemory;
///
/// fn lend_twice(memory: DmaMemory<'static>) -> [DmaMemory<'static>; 2] {
///     [memory, memory]
/// }
/// ```
pub struct DmaMemory<'s>(DmaView<'s>);

impl<'s> DmaMemory<'s> {
    /// Takes memory that the device sees at a bus address.
    ///
    /// # Safety
    /// - The device reaches exactly these bytes at `bus` and the addresses that follow. It writes
    ///   only 32-bit numbers that it may set to any value.
    /// - No other code writes the memory and no other `DmaMemory` holds it until the device was
    ///   stopped: by a halt, or because all objects created in the memory were destroyed.
    /// - The memory exists until then. A forgotten backend does not stop the device: if the
    ///   lifetime `'s` may end after that, the memory must be `'static`.
    #[expect(unsafe_code)]
    // UNSAFETY: the function cannot check the device's view of the bus.
    pub const unsafe fn new(units: &'s [DeviceUnit], bus: u64) -> Self {
        Self(DmaView::new(units, bus))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        size_of_val(self.0.units)
    }

    /// Returns true if the memory has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.units.is_empty()
    }

    /// Converts to a view that the driver allocates queues from.
    pub(crate) const fn into_view(self) -> DmaView<'s> {
        self.0
    }
}

impl fmt::Debug for DmaMemory<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Memory by bus address, as the driver and a device in software see it.
#[derive(Clone, Copy)]
pub struct DmaView<'s> {
    units: &'s [DeviceUnit],
    bus: u64,
}

impl<'s> DmaView<'s> {
    /// Creates a view of units whose first one has a bus address.
    #[must_use]
    pub const fn new(units: &'s [DeviceUnit], bus: u64) -> Self {
        Self { units, bus }
    }

    /// Returns the bus address of the first unit.
    #[must_use]
    pub const fn bus(&self) -> u64 {
        self.bus
    }

    /// Returns `units` units at a bus address.
    ///
    /// Returns `None` unless they lie within the view and start at a 16-byte unit.
    #[must_use]
    pub fn seen_at(&self, bus: u64, units: usize) -> Option<&'s [DeviceUnit]> {
        let offset = bus.checked_sub(self.bus)?;
        let first = usize::try_from(offset / size_of::<DeviceUnit>() as u64).ok()?;
        if offset % size_of::<DeviceUnit>() as u64 != 0 {
            return None;
        }
        self.units.get(first..first.checked_add(units)?)
    }

    /// Returns a part of the view.
    pub(crate) fn part(&self, first: usize, units: usize) -> Option<Self> {
        Some(Self {
            units: self.units.get(first..first.checked_add(units)?)?,
            bus: self
                .bus
                .checked_add((first * size_of::<DeviceUnit>()) as u64)?,
        })
    }

    /// Returns all units of the view.
    #[must_use]
    pub const fn units(&self) -> &'s [DeviceUnit] {
        self.units
    }
}

impl fmt::Debug for DmaView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = size_of_val(self.units);
        write!(formatter, "{bytes} bytes at bus {:#x}", self.bus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_big_endian_in_memory() {
        let word = DeviceWord::new();
        word.store(0x0102_0304);
        assert_eq!(word.load(), 0x0102_0304);
        assert_eq!(word.0.load(Ordering::Relaxed).to_ne_bytes(), [1, 2, 3, 4]);
    }

    /// A source must not repeat one number; a processor without a source passes.
    #[test]
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    fn random_numbers_of_the_processor_differ() {
        let drawn: std::vec::Vec<_> = (0..8).map(|_| CoherentHal.random()).collect();
        let [first, rest @ ..] = &drawn[..] else {
            unreachable!("several");
        };
        // Eight equal numbers occur once in 2^224.
        assert!(first.is_none() || rest.iter().any(|next| next != first));
    }

    #[test]
    fn units_keep_the_order_of_numbers() {
        let unit = DeviceUnit::new();
        unit.put([0x0102_0304, 2, 3, 0xFFFF_FFF0]);
        assert_eq!(
            unit.each_ref().map(DeviceWord::load),
            [0x0102_0304, 2, 3, 0xFFFF_FFF0]
        );
    }

    /// A device in software writes from another thread.
    ///
    /// The thread sanitizer checks these accesses as shipped.
    #[test]
    fn threads_share_words_and_units() {
        const LAST: u32 = 1000;
        let unit = DeviceUnit::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=LAST {
                    if number % 2 == 0 {
                        unit.put([number; 4]);
                    } else {
                        unit[1].store(number);
                    }
                }
            });
            let mut seen = 0;
            while seen != LAST {
                let next = unit[1].load();
                assert!((seen..=LAST).contains(&next), "{next} after {seen}");
                seen = next;
                std::thread::yield_now();
            }
        });
    }

    /// Consumer memory may be a shared borrow, as are the sources of vectors.
    ///
    /// Miri checks the pointers derived from it.
    #[test]
    #[expect(unsafe_code)]
    fn consumer_memory_behind_a_shared_borrow_is_read() {
        let bytes = [1_u8, 2, 3, 4, 5];
        let address = bytes.as_ptr().expose_provenance() as u64;
        for (count, read) in [(0, 0), (1, 0x0200_0000), (4, 0x0203_0405), (9, 0x0203_0405)] {
            // SAFETY: the array has four bytes after the first one, and the call reads at most
            // four.
            assert_eq!(unsafe { read_consumer(address + 1, count) }, read);
        }
    }

    #[test]
    fn memory_is_found_by_bus_address() {
        let units = [const { DeviceUnit::new() }; 4];
        let memory = DmaView::new(&units, 0x1000);
        assert_eq!(memory.seen_at(0x1010, 3).map(<[_]>::len), Some(3));
        for (bus, count) in [(0xFF0, 1), (0x1010, 4), (0x1008, 1), (u64::MAX - 7, 1)] {
            assert!(memory.seen_at(bus, count).is_none(), "{bus:#x}");
        }
        let part = memory.part(1, 2).expect("a part");
        assert_eq!((part.units().len(), part.bus()), (2, 0x1010));
        assert!(memory.part(3, 2).is_none());
    }
}
