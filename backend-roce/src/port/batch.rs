//! Runs of packets that leave in one send.

use super::{Port, PortFull};
use crate::proto::icrc::Flow;
use crate::proto::packet::{Bth, ICRC_LENGTH};

/// Most packets of a run: what the segmentation of a socket takes.
pub const RUN_PACKETS_MAX: u16 = 64;

/// Longest run in bytes: the payload of the largest datagram.
pub const RUN_BYTES_MAX: usize = 65_507;

/// Length of the shortest packet: a BTH and an ICRC.
const PACKET_MIN: usize = Bth::LENGTH + ICRC_LENGTH;

/// Packets of one flow and one length.
#[derive(Clone, Copy, Debug)]
struct Run {
    flow: Flow,
    /// Length of each packet but the last.
    segment: usize,
    length: usize,
    packets: u16,
    /// Set once a shorter packet ended the run.
    ends: bool,
}

impl Run {
    const fn of(flow: Flow, length: usize) -> Self {
        Self {
            flow,
            segment: length,
            length,
            packets: 1,
            ends: false,
        }
    }

    /// Adds a packet; false if it begins another run.
    fn add(&mut self, flow: &Flow, length: usize) -> bool {
        let total = self.length.saturating_add(length);
        let fits = !self.ends
            && self.flow == *flow
            && length <= self.segment
            && self.packets < RUN_PACKETS_MAX
            && total <= RUN_BYTES_MAX;
        if fits {
            self.ends = length < self.segment;
            self.length = total;
            self.packets = self.packets.saturating_add(1);
        }
        fits
    }
}

/// A run under construction in a lent buffer, with the packet that begins the next one.
///
/// Packets of several queue pairs to one peer share a run (ROCE-57). The order of packets is kept.
#[derive(Debug)]
pub struct Batch<'b> {
    buffer: &'b mut [u8],
    run: Option<Run>,
    /// The first packet of the next run, behind the run.
    next: Option<Run>,
}

impl<'b> Batch<'b> {
    /// Makes an empty batch; `buffer` needs room for two packets at least.
    pub const fn new(buffer: &'b mut [u8]) -> Self {
        Self {
            buffer,
            run: None,
            next: None,
        }
    }

    /// Adds a packet of `flow` that `write` writes and whose length it returns.
    ///
    /// `write` gets at least `room` bytes, and is not called where the port is full. False means
    /// that it had nothing to write, or that the buffer is too short.
    pub fn add(
        &mut self,
        port: &mut impl Port,
        flow: &Flow,
        room: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Result<bool, PortFull> {
        if self.next.is_some() || self.rest().len() < room {
            self.send_run(port)?;
        }
        // The packet that became the run may be in the way, too.
        if self.rest().len() < room {
            self.send_run(port)?;
        }
        let rest = self.rest();
        if rest.len() < room {
            return Ok(false);
        }
        let Some(length) = write(rest) else {
            return Ok(false);
        };
        if !(PACKET_MIN..=rest.len()).contains(&length) {
            return Ok(false);
        }
        let begins = !self.run.as_mut().is_some_and(|run| run.add(flow, length));
        let packets = self.run.map_or(0, |run| run.packets);
        let identification = if begins { 0 } else { packets.saturating_sub(1) };
        let start = match self.run {
            Some(run) if begins => run.length,
            Some(run) => run.length.saturating_sub(length),
            None => 0,
        };
        let packet = self.buffer.get_mut(start..start.saturating_add(length));
        if let Some(packet) = packet {
            // Long enough, as was checked.
            let _ = flow.seal(identification, packet);
        }
        if begins {
            let run = Run::of(*flow, length);
            match self.run {
                None => self.run = Some(run),
                Some(_) => self.next = Some(run),
            }
        }
        Ok(true)
    }

    /// Sends everything; on an error the rest stays.
    pub fn flush(&mut self, port: &mut impl Port) -> Result<(), PortFull> {
        self.send_run(port)?;
        // The first packet of the next run, which is the run now.
        self.send_run(port)
    }

    /// Sends the run; the packet behind it becomes the run.
    fn send_run(&mut self, port: &mut impl Port) -> Result<(), PortFull> {
        let Some(run) = self.run else {
            return Ok(());
        };
        let packets = self.buffer.get(..run.length).unwrap_or_default();
        port.send(&run.flow, packets, run.segment)?;
        self.run = self.next.take();
        if let Some(next) = self.run {
            let moved = run.length..run.length.saturating_add(next.length);
            if moved.end <= self.buffer.len() {
                self.buffer.copy_within(moved, 0);
            }
        }
        Ok(())
    }

    /// Returns the buffer behind the run.
    fn rest(&mut self) -> &mut [u8] {
        let used = self.run.map_or(0, |run| run.length);
        self.buffer.get_mut(used..).unwrap_or_default()
    }
}
