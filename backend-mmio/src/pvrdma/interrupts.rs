//! Device interrupts (MSI-X) as words of memory that the device writes.
//!
//! They serve machines that have no interrupt controller or handler, or do not want to use them.

use crate::fault::DeviceFault;
use crate::platform::{DeviceWord, Hal};

/// Subject of an interrupt; the value is its index in the device's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A command was answered.
    Answer = 0,
    /// Events of objects are pending.
    Events = 1,
    /// Notices of completion queues are pending.
    Completions = 2,
}

/// Number of interrupts.
const COUNT: usize = 3;

/// Value that the first interrupt writes; each further one writes 1 more.
///
/// No word contains such a value by chance.
const FIRST_TOKEN: u32 = 0xDA7A_0001;

/// The words that the interrupts of a device write, one per interrupt.
///
/// The platform configures the device with them ([`table`](Self::table)) and gives them to the
/// driver ([`Parts::messages`](super::Parts::messages), [lent](Self::lend)). It may wait until they
/// are no longer [silent](Self::is_silent). A word only announces reports; the reports are in the
/// rings, which the driver also polls at intervals without a message. A device may lose a message
/// (QEMU's does), so a waiting platform must end its wait after a while.
///
/// The processor must see the device's writes to the words without maintenance: the driver
/// maintains no cache for them. Where [`Hal::COHERENT`] is false, the words must be in uncached
/// memory; an ordinary `static` is not. They fill a 64-byte line, so that the line contains no
/// other written data.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct MessageWords([DeviceWord; COUNT]);

impl MessageWords {
    /// Creates words without a message.
    pub const fn new() -> Self {
        Self([const { DeviceWord::new() }; COUNT])
    }

    /// Returns the target word and the value of each entry of the device's interrupt table.
    ///
    /// The value is the number that the device writes on the bus.
    pub fn table(&self) -> [(&DeviceWord, u32); COUNT] {
        let [answer, events, completions] = &self.0;
        [
            (answer, Message::Answer.token()),
            (events, Message::Events.token()),
            (completions, Message::Completions.token()),
        ]
    }

    /// Returns true if no message is pending.
    ///
    /// The next [`progress`](dat_core::Ia::progress) takes pending messages.
    pub fn is_silent(&self) -> bool {
        self.0.iter().all(|word| word.load() == 0)
    }

    /// Lends the words to one driver and returns a view for the caller.
    ///
    /// The caller uses the view to configure the device and to wait. The words stay borrowed while
    /// either is in use, so they cannot be lent to another driver:
    ///
    /// ```compile_fail,E0499
    /// use backend_mmio::pvrdma::MessageWords;
    ///
    /// let mut words = MessageWords::new();
    /// let (first, _) = words.lend();
    /// let (second, _) = words.lend();
    /// drop((first, second));
    /// ```
    #[must_use]
    pub const fn lend(&mut self) -> (LentMessages<'_>, &Self) {
        let words: &Self = self;
        (LentMessages(words), words)
    }

    /// Removes messages of an earlier device.
    pub(crate) fn clear(&self) {
        for word in &self.0 {
            word.store(0);
        }
    }

    /// Takes a message and returns true if it was pending; fails on another value.
    ///
    /// The word is read and then cleared by separate accesses: devices do not take part in atomic
    /// updates. A message written in between is not lost, since the caller polls its subject
    /// afterwards.
    pub(crate) fn take<H: Hal>(&self, message: Message) -> Result<bool, DeviceFault> {
        let Some(word) = self.0.get(message as usize) else {
            return Ok(false);
        };
        // `load` returns a big-endian number, and a message is little-endian.
        let written = word.load().swap_bytes();
        if written == 0 {
            return Ok(false);
        }
        word.store(0);
        H::store_before_load();
        if written == message.token() {
            Ok(true)
        } else {
            Err(DeviceFault::WrongMessage)
        }
    }
}

/// The words of a device's messages, lent exclusively by [`MessageWords::lend`].
#[derive(Debug)]
pub struct LentMessages<'s>(pub(crate) &'s MessageWords);

impl LentMessages<'_> {
    /// Lends the words for a shorter time, to one driver after the other.
    #[must_use]
    pub const fn again(&mut self) -> LentMessages<'_> {
        LentMessages(self.0)
    }
}

impl Message {
    const fn token(self) -> u32 {
        FIRST_TOKEN.wrapping_add(self as u32)
    }
}

#[cfg(all(test, any(target_arch = "x86", target_arch = "x86_64")))]
mod tests {
    use super::*;
    use crate::CoherentHal;

    const ALL: [Message; COUNT] = [Message::Answer, Message::Events, Message::Completions];

    /// Writes a message as a device does.
    fn send((word, value): (&DeviceWord, u32)) {
        word.store(value.swap_bytes());
    }

    #[test]
    fn a_message_is_taken_once_under_its_own_kind() {
        let words = MessageWords::new();
        assert!(words.is_silent());
        for (message, entry) in ALL.into_iter().zip(words.table()) {
            send(entry);
            assert!(!words.is_silent());
            for other in ALL.into_iter().filter(|other| *other != message) {
                assert_eq!(words.take::<CoherentHal>(other), Ok(false));
            }
            assert_eq!(words.take::<CoherentHal>(message), Ok(true));
            assert_eq!(words.take::<CoherentHal>(message), Ok(false));
            assert!(words.is_silent());
        }
    }

    #[test]
    fn an_invalid_message_word_is_a_fault() {
        let words = MessageWords::new();
        for (message, (word, value)) in ALL.into_iter().zip(words.table()) {
            let bits = (0..u32::BITS).map(|bit| value ^ 1 << bit);
            for wrong in bits.chain([u32::MAX, 1, value.swap_bytes()]) {
                send((word, wrong));
                let fault = DeviceFault::WrongMessage;
                assert_eq!(words.take::<CoherentHal>(message), Err(fault));
                assert!(words.is_silent());
            }
        }
    }

    #[test]
    fn clearing_removes_earlier_messages() {
        let words = MessageWords::new();
        words.table().into_iter().for_each(send);
        words.clear();
        assert!(words.is_silent());
    }
}
