//! Memory that the device shares, and the order of accesses to it. One of the two rooms with `unsafe`.

use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
use core::sync::atomic::{compiler_fence, fence};

use dat_core::backend::SyncDirection;
use dat_core::sync::copy_from_shared;

/// Order between the processor and the device, by what it is for; and its caches.
///
/// # Safety
/// The driver hands descriptors over with these barriers. One that does less than it says lets the device read a descriptor
/// half-written, and with it act on memory that nobody named.
#[expect(unsafe_code)]
// UNSAFETY: what a bus does to the order of accesses is beyond the compiler.
pub unsafe trait Hal: Clone {
    /// Whether device and processor see the same memory without maintenance.
    const COHERENT: bool;

    /// The same of this one, where platforms of one type differ.
    fn is_coherent(&self) -> bool {
        Self::COHERENT
    }

    /// What was stored to memory before is there for a device that sees what is stored afterwards.
    fn to_device();

    /// What is loaded afterwards is no older than what was loaded from memory before.
    fn from_device();

    /// What was stored to memory before is there for a device that sees a register written afterwards.
    fn to_register();

    /// What was stored to memory before is there before anything is loaded afterwards.
    fn store_before_load();

    /// As [`to_register`](Self::to_register), of a register whose stores the processor gathers (write-combining): these pass
    /// earlier stores to memory unless a fence of the processor keeps them back.
    fn to_gathered_register() {
        Self::store_before_load();
        Self::to_register();
    }

    /// What was stored to a register is on its way to the device, also where the processor gathers such stores.
    fn flush_register() {
        Self::store_before_load();
    }

    /// A random number that peers cannot guess, if the platform has a source of such: the keys of windows begin and step by it.
    ///
    /// Without one, which is the default, each key is one more than the last.
    fn random(&self) -> Option<u32> {
        None
    }

    /// Maintains the caches over consumer memory, for platforms that are not coherent; complete on return.
    fn synchronise(&self, direction: SyncDirection, address: u64, length: u64);
}

/// The barriers of x86, whose devices take part in the coherence of caches.
///
/// There stores to memory and then to an uncached register stay in order by themselves, and so do loads; stores to a
/// write-combining window do not, and get a fence. On Arm of 64 bits and RISC-V a type of this name has instructions of
/// theirs. On other processors there is none: no fence of the language orders memory before a register, and the platform
/// says which instruction does.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct CoherentHal;

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[expect(unsafe_code)]
// SAFETY: x86 keeps stores in order, and loads in order, for memory and uncached registers; a load that must not overtake a
// store gets a full fence.
unsafe impl Hal for CoherentHal {
    const COHERENT: bool = true;

    #[inline(always)]
    fn to_device() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn from_device() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn to_register() {
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn to_gathered_register() {
        store_fence();
    }

    #[inline(always)]
    fn flush_register() {
        store_fence();
    }

    #[inline(always)]
    fn store_before_load() {
        fence(Ordering::SeqCst);
    }

    /// From the processor (`RDRAND`), where it has such an instruction.
    fn random(&self) -> Option<u32> {
        #[cfg(target_arch = "x86")]
        use core::arch::x86 as processor;
        #[cfg(target_arch = "x86_64")]
        use core::arch::x86_64 as processor;

        const RDRAND: u32 = 1 << 30;
        /// Tries until the source counts as exhausted, as the processor's manual has it.
        const TRIES: u32 = 10;
        #[target_feature(enable = "rdrand")]
        fn draw() -> Option<u32> {
            (0..TRIES).find_map(|_| {
                let mut drawn = 0;
                #[expect(unused_unsafe, reason = "older compilers ask for it")]
                // SAFETY: this function is called where the processor has the instruction.
                let done = unsafe { processor::_rdrand32_step(&mut drawn) };
                (done == 1).then_some(drawn)
            })
        }

        #[expect(unused_unsafe, reason = "older compilers ask for it")]
        // SAFETY: every processor that this project is compiled for has the instruction.
        let features = unsafe { processor::__cpuid(1) };
        if features.ecx & RDRAND == 0 {
            return None;
        }
        // SAFETY: the processor has the instruction, as it just said.
        unsafe { draw() }
    }

    fn synchronise(&self, _direction: SyncDirection, _address: u64, _length: u64) {
        fence(Ordering::SeqCst);
    }
}

/// Orders all stores before it before all after it, gathered ones too, and sends those that were gathered on their way.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[inline(always)]
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code)]
    // SAFETY: every processor of 64 bits has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    // A locked instruction or `mfence`, which older processors have.
    #[cfg(target_arch = "x86")]
    fence(Ordering::SeqCst);
}

/// A word of memory that the device may read or write at any moment; it holds a big-endian number.
///
/// It is only ever loaded and stored as a whole. Never read and written in one: devices do not take part in that.
#[repr(transparent)]
pub struct DeviceWord(AtomicU32);

impl DeviceWord {
    /// A word of zeros.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The number in it, read once.
    ///
    /// An atomic load, as [`store`](Self::store) is an atomic store: a device in software is another thread.
    #[inline(always)]
    #[must_use]
    pub fn load(&self) -> u32 {
        u32::from_be(self.0.load(Ordering::Relaxed))
    }

    /// Puts a number in.
    #[inline(always)]
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

/// Reads up to four bytes of consumer memory, which others may be writing; what is missing is 0.
///
/// # Safety
/// So many bytes at the address are in a region that is registered, and stay so during the call.
#[expect(unsafe_code)]
// UNSAFETY: what is at an address cannot be checked here.
pub(crate) unsafe fn read_consumer(address: u64, bytes: u32) -> u32 {
    let mut read = [0; 4];
    // What was registered has exposed its provenance, which may be that of a borrow for reading: no reference to an atomic is
    // made of it, which would claim the right to write.
    let from = core::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the caller says that the bytes are there; whoever shares them does so with atomic accesses of bytes.
    unsafe { copy_from_shared(from, read.as_mut_ptr(), read.len().min(bytes as usize)) };
    u32::from_be_bytes(read)
}

/// 16 bytes of memory that the device shares, the piece that descriptors are made of.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct DeviceUnit([DeviceWord; 4]);

impl DeviceUnit {
    /// A unit of zeros.
    pub const fn new() -> Self {
        Self([const { DeviceWord::new() }; 4])
    }

    /// Stores four numbers, in any order.
    ///
    /// The device learns of them from a later store, behind a barrier. Each word is a store of its own: stores of two
    /// words would race with loads of one.
    #[inline(always)]
    pub(crate) fn put(&self, numbers: [u32; 4]) {
        for (word, number) in self.0.iter().zip(numbers) {
            word.store(number);
        }
    }
}

impl Deref for DeviceUnit {
    type Target = [DeviceWord; 4];

    #[inline(always)]
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

/// Memory that the device shares, owned by one driver.
///
/// Neither `Copy` nor `Clone`: two drivers in one memory would write each other's descriptors. Whoever plays the device looks
/// at it through a [`DmaView`].
///
/// ```compile_fail,E0382
/// fn lend_twice(memory: backend_mmio::DmaMemory<'static>) -> [backend_mmio::DmaMemory<'static>; 2] {
///     [memory, memory]
/// }
/// ```
pub struct DmaMemory<'s>(DmaView<'s>);

impl<'s> DmaMemory<'s> {
    /// Takes memory that the device sees at a bus address.
    ///
    /// # Safety
    /// - The device reaches exactly these bytes at `bus` and the addresses that follow, and writes nothing but numbers of 32
    ///   bits there that it may write any value to.
    /// - Nobody else writes them, and no other `DmaMemory` holds them, until the device was told to stop: it was halted, or
    ///   everything that was made in the memory was destroyed.
    /// - The memory stays until then. A backend that is forgotten tells the device nothing: memory of which the lifetime `'s`
    ///   may end after that has to be `'static`.
    #[expect(unsafe_code)]
    // UNSAFETY: where the bus leads cannot be checked here.
    pub const unsafe fn new(units: &'s [DeviceUnit], bus: u64) -> Self {
        Self(DmaView::new(units, bus))
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        size_of_val(self.0.units)
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.units.is_empty()
    }

    /// All of it, for the driver to cut its queues from.
    pub(crate) const fn into_view(self) -> DmaView<'s> {
        self.0
    }
}

impl fmt::Debug for DmaMemory<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A view of memory by bus addresses: what a device in software sees of it, and what the driver cuts queues from.
#[derive(Clone, Copy)]
pub struct DmaView<'s> {
    units: &'s [DeviceUnit],
    bus: u64,
}

impl<'s> DmaView<'s> {
    /// A view of units, the first of which is at a bus address.
    #[must_use]
    pub const fn new(units: &'s [DeviceUnit], bus: u64) -> Self {
        Self { units, bus }
    }

    /// Where the device sees it.
    #[must_use]
    pub const fn bus(&self) -> u64 {
        self.bus
    }

    /// The words of the piece that the device sees at an address, if it is within and starts with a unit of 16 bytes.
    #[must_use]
    pub fn seen_at(&self, bus: u64, units: usize) -> Option<&'s [DeviceUnit]> {
        let offset = bus.checked_sub(self.bus)?;
        let first = usize::try_from(offset / size_of::<DeviceUnit>() as u64).ok()?;
        if offset % size_of::<DeviceUnit>() as u64 != 0 {
            return None;
        }
        self.units.get(first..first.checked_add(units)?)
    }

    /// A piece of it.
    pub(crate) fn part(&self, first: usize, units: usize) -> Option<Self> {
        Some(Self {
            units: self.units.get(first..first.checked_add(units)?)?,
            bus: self
                .bus
                .checked_add((first * size_of::<DeviceUnit>()) as u64)?,
        })
    }

    /// All of its units.
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

    /// A source that always says the same is none; one that is not there is an answer too.
    #[test]
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    fn numbers_of_the_processor_differ() {
        let drawn: std::vec::Vec<_> = (0..8).map(|_| CoherentHal.random()).collect();
        let [first, rest @ ..] = &drawn[..] else {
            unreachable!("several");
        };
        // All eight alike once in 2^224.
        assert!(first.is_none() || rest.iter().any(|next| next != first));
    }

    #[test]
    fn units_hold_numbers_in_their_order() {
        let unit = DeviceUnit::new();
        unit.put([0x0102_0304, 2, 3, 0xFFFF_FFF0]);
        assert_eq!(
            unit.each_ref().map(DeviceWord::load),
            [0x0102_0304, 2, 3, 0xFFFF_FFF0]
        );
    }

    /// A device in software writes from another thread; the thread sanitizer looks at these accesses as they ship.
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

    /// Consumer memory may be lent for reading alone, as the sources of vectors are; Miri looks at what is made of it.
    #[test]
    #[expect(unsafe_code)]
    fn consumer_memory_is_read_by_a_borrow_for_reading() {
        let bytes = [1_u8, 2, 3, 4, 5];
        let address = bytes.as_ptr().expose_provenance() as u64;
        for (count, read) in [(0, 0), (1, 0x0200_0000), (4, 0x0203_0405), (9, 0x0203_0405)] {
            // SAFETY: four bytes behind the first one are there, and no more are read.
            assert_eq!(unsafe { read_consumer(address + 1, count) }, read);
        }
    }

    #[test]
    fn memory_is_found_where_the_device_sees_it() {
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
