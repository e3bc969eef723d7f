//! Interrupts of the device as words of memory that it writes into (MSI-X), for machines that have neither a controller of interrupts
//! nor a handler, or want none.

use crate::fault::DeviceFault;
use crate::hal::{DeviceWord, Hal};

/// What an interrupt of the device is about, by its place in the table of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A command was answered.
    Answer = 0,
    /// There are events of objects.
    Events = 1,
    /// There are notices of completion queues.
    Completions = 2,
}

/// How many interrupts there are.
const COUNT: usize = 3;

/// What the first interrupt writes, and each of the others one more: nothing that a word holds by chance.
const FIRST_TOKEN: u32 = 0xDA7A_0001;

/// The words that interrupts of a device write into, one for each.
///
/// The platform tells the device of them ([`table`](Self::table)), gives them to the driver
/// ([`Parts::messages`](super::Parts::messages), [lent](Self::lend)), and may wait until they are not [silent](Self::is_silent) any more. A word only says that it is worth looking:
/// what happened stands in the rings, which the driver looks at now and then even if no word says so. A device may lose a message (QEMU's does), so who waits is to
/// end a wait after a while.
///
/// They have to be where the processor sees the device's writes without maintenance, as in memory that both share: the driver maintains no
/// cache over them. Where [`Hal::COHERENT`] is false that is memory which is not cached; an ordinary `static` is not. They fill a line of 64 bytes,
/// so that nothing else that is written to is in it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct MessageWords([DeviceWord; COUNT]);

impl MessageWords {
    /// Words that nobody has written.
    pub const fn new() -> Self {
        Self([const { DeviceWord::new() }; COUNT])
    }

    /// For each entry of the device's table of interrupts, from the first on, the word that it goes to, and what it writes there, as a number
    /// of the bus.
    pub fn table(&self) -> [(&DeviceWord, u32); COUNT] {
        let [answer, events, completions] = &self.0;
        [
            (answer, Message::Answer.token()),
            (events, Message::Events.token()),
            (completions, Message::Completions.token()),
        ]
    }

    /// Whether the device has written nothing that the driver has not taken. The driver takes it by the next
    /// [`progress`](dat_core::Ia::progress).
    pub fn is_silent(&self) -> bool {
        self.0.iter().all(|word| word.load() == 0)
    }

    /// Lends the words to one driver; the caller keeps a view of them, to tell the device and to wait.
    ///
    /// The words are borrowed as long as either is used, so that no other driver is lent them meanwhile:
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

    /// Forgets what a device of before has written.
    pub(crate) fn clear(&self) {
        for word in &self.0 {
            word.store(0);
        }
    }

    /// Whether a message has come, which is taken; an error if it is none of the device's.
    ///
    /// The word is read and then cleared, not both at once: devices take no part in that. What is written in between is not lost, since what it
    /// tells of is looked for afterwards.
    pub(crate) fn take<H: Hal>(&self, message: Message) -> Result<bool, DeviceFault> {
        let Some(word) = self.0.get(message as usize) else {
            return Ok(false);
        };
        // A word of the device's memory holds a big-endian number, and a message is a little-endian one.
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

/// The words of a device's messages, lent to its driver alone: made by [`MessageWords::lend`].
#[derive(Debug)]
pub struct LentMessages<'s>(pub(crate) &'s MessageWords);

impl LentMessages<'_> {
    /// The same for a shorter time, for drivers one after the other.
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

    /// What a device does.
    fn send((word, value): (&DeviceWord, u32)) {
        word.store(value.swap_bytes());
    }

    #[test]
    fn a_message_is_taken_once_and_by_its_own_name() {
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
    fn what_is_no_message_of_this_word_is_a_fault() {
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
    fn what_was_written_before_is_forgotten() {
        let words = MessageWords::new();
        words.table().into_iter().for_each(send);
        words.clear();
        assert!(words.is_silent());
    }
}
