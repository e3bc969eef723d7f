//! Peers that hold the room of others (ROCE-191, ROCE-192): their responses are counted apart, and
//! queue pairs that have waited get their minimum.

use core::net::SocketAddr;
use core::time::Duration;

use super::super::Adapter;
use super::super::deadlines::Timer;
use super::super::timers::after;
use super::socket_buffer::{SocketBuffer, note_wait};

/// Times that responses take at most, of peers that are prompt and of those that are far.
pub(super) const PROMPT: Duration = Duration::from_millis(1);
pub(super) const FAR: Duration = Duration::from_millis(10);

/// Time for which a peer counts as far or slow.
const SLOW_TIME: Duration = Duration::from_secs(10);

/// Time for which a queue pair waits before it has its minimum.
const STARVED: Duration = Duration::from_millis(10);

/// How fast a peer responds; decides with whom its responses share room (ROCE-191).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pace {
    /// With all others.
    Prompt,
    /// With others that are far.
    Far,
    /// With nobody.
    Slow(SocketAddr),
}

impl Adapter {
    /// Returns the pace of a peer now.
    pub(super) fn pace(&self, peer: SocketAddr) -> Pace {
        match self.slow_peers.get(&peer.ip()) {
            Some((is_slow, until)) if self.now < *until => match is_slow {
                true => Pace::Slow(peer),
                false => Pace::Far,
            },
            _ => Pace::Prompt,
        }
    }

    /// Lists a queue pair with responses that are due.
    pub(super) fn add_due(&mut self, number: usize, key: usize) {
        let share = self.pairs.get_mut(key).and_then(|pair| pair.share.as_mut());
        if let Some(buffer) = self.buffers.get_mut(number)
            && let Some(share) = share
            // Without memory, the queue pair does not count as slow.
            && buffer.due.try_reserve(1).is_ok()
        {
            share.due_place = Some(buffer.due.len());
            buffer.due.push(key);
        }
    }

    /// Removes the queue pair at a place of the list of those with responses that are due.
    pub(super) fn remove_due(&mut self, number: usize, place: usize) {
        let Some(buffer) = self.buffers.get_mut(number) else {
            return;
        };
        if place >= buffer.due.len() {
            return;
        }
        let removed = buffer.due.swap_remove(place);
        let moved = buffer.due.get(place).copied();
        for (key, place) in [(Some(removed), None), (moved, Some(place))] {
            let pair = key.and_then(|key| self.pairs.get_mut(key));
            if let Some(share) = pair.and_then(|pair| pair.share.as_mut()) {
                share.due_place = place;
            }
        }
    }

    /// Starts the timer of a buffer that queue pairs wait for, if it does not run.
    pub(super) fn begin_patience(&mut self, number: usize) {
        if let Some(buffer) = self.buffers.get(number)
            && !self.deadlines.is_set(Timer::Patience(number))
        {
            let end = after(self.now, buffer.patience());
            self.deadlines.set(Timer::Patience(number), Some(end));
        }
    }

    /// Finds peers that hold the room of others, and gives those that have waited their minimum.
    ///
    /// Looks at those that wait or have responses due, not at all that share the buffer.
    pub(in crate::adapter) fn end_patience(&mut self, number: usize) {
        let Some(buffer) = self.buffers.get_mut(number) else {
            return;
        };
        let waited = core::mem::take(&mut buffer.waited);
        self.find_slow_peers(number, waited);
        let Some(SocketBuffer {
            waiting, waited, ..
        }) = self.buffers.get_mut(number)
        else {
            return;
        };
        let mut next = waiting.map(|(first, _)| first);
        while let Some(key) = next.take()
            && let Some(pair) = self.pairs.get_mut(key)
            && let Some(share) = &mut pair.share
        {
            next = share.neighbours[1];
            note_wait(waited, share.requests);
            if after(share.waits_since, STARVED) <= self.now {
                share.is_starved = true;
                if !core::mem::replace(&mut pair.is_ready, true) {
                    self.ready_pairs.push_back(key);
                }
            } else if let [_, Some(_)] = waited {
                // The others have waited for less.
                break;
            }
        }
        if waiting.is_some() {
            self.begin_patience(number);
        }
    }

    /// Counts the responses of peers apart that have been due for long, if queue pairs of others
    /// have waited.
    ///
    /// Queue pairs of one peer wait for each other: their responses may all come at once. Those of
    /// a slow peer that have nothing due move when they send.
    fn find_slow_peers(&mut self, number: usize, waited: [Option<usize>; 2]) {
        let Some(buffer) = self.buffers.get(number) else {
            return;
        };
        let (now, until) = (self.now, after(self.now, SLOW_TIME));
        let patience = buffer.patience();
        for key in &buffer.due {
            if let Some(share) = self.pairs.get(*key).and_then(|pair| pair.share)
                && after(share.due_since, patience) <= now
                && waited
                    .into_iter()
                    .flatten()
                    .any(|peer| peer != share.requests)
                && let Some(peer) = self.buffers.get(share.requests)
            {
                let peer = peer.address.0;
                let is_slow = share.pace > Pace::Prompt || self.pace(peer) > Pace::Far;
                // Without memory, the peer does not count as slow.
                if self.slow_peers.try_reserve(1).is_err() {
                    break;
                }
                let known = self.slow_peers.insert(peer.ip(), (is_slow, until));
                // Now and then is enough: what has ended does not count.
                if known.is_none() && self.slow_peers.len().is_power_of_two() {
                    self.slow_peers.retain(|_, (_, until)| now < *until);
                }
            }
        }
        // From the end: what leaves is replaced by the last one.
        let mut place = buffer.due.len();
        while let Some(before) = place.checked_sub(1) {
            place = before;
            let Some(key) = self
                .buffers
                .get(number)
                .and_then(|buffer| buffer.due.get(place))
            else {
                continue;
            };
            let key = *key;
            if let Some(share) = self.pairs.get(key).and_then(|pair| pair.share)
                && let Some(peer) = self.buffers.get(share.requests)
                && self.pace(peer.address.0) != share.pace
            {
                self.renew_buffers(key);
            }
        }
    }

    /// Moves the share of a queue pair to the buffers of its peer's pace.
    pub(super) fn renew_buffers(&mut self, key: usize) {
        if let Some(path) = self.pairs.get(key).and_then(|pair| pair.path) {
            self.change_buffers(key, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use dat_core::time::Instant;

    use super::super::Share;
    use super::super::tests::{adapter, path, share, socket};
    use super::*;

    /// Those with something due are found without the others, in whatever order they come and go.
    ///
    /// Spec: ROCE-191
    #[test]
    fn the_list_of_what_is_due_has_nothing_else() {
        let mut adapter = adapter(20);
        let number = share(&mut adapter, 0).responses;
        let check = |adapter: &mut Adapter, due: &[usize]| {
            let mut listed = adapter.buffers.get(number).expect("a buffer").due.clone();
            for (place, key) in listed.iter().enumerate() {
                assert_eq!(share(adapter, *key).due_place, Some(place));
            }
            listed.sort_unstable();
            assert_eq!(listed, due);
        };
        for key in [3, 9, 1, 12] {
            adapter.add_due(number, key);
        }
        check(&mut adapter, &[1, 3, 9, 12]);
        for (key, left) in [(3, &[1, 9, 12][..]), (12, &[1, 9])] {
            let place = share(&mut adapter, key).due_place.expect("a place");
            adapter.remove_due(number, place);
            assert_eq!(share(&mut adapter, key).due_place, None);
            check(&mut adapter, left);
        }
        // One that leaves the buffer has nothing due there.
        adapter.leave_buffers(9);
        check(&mut adapter, &[1]);
        adapter.remove_due(number, 7);
        check(&mut adapter, &[1]);
    }

    /// The end of patience counts the late ones apart, and gives those that wait their minimum.
    ///
    /// Spec: ROCE-191..192
    #[test]
    fn the_end_of_patience_finds_the_late_and_the_starved() {
        let mut adapter = adapter(20);
        let number = share(&mut adapter, 0).responses;
        for key in [2, 5] {
            share(&mut adapter, key).due = 1;
            adapter.add_due(number, key);
        }
        let peer = share(&mut adapter, 7).requests;
        assert_ne!(peer, number);
        adapter.begin_wait(7, number);
        for (time, late, is_starved) in [(500, 0, false), (1_000, 2, false), (10_000, 2, true)] {
            adapter.now = Instant::from_micros(time);
            adapter.end_patience(number);
            assert_eq!(adapter.slow_peers.len(), late, "{time}");
            assert_eq!(share(&mut adapter, 7).is_starved, is_starved, "{time}");
        }
        assert_eq!(adapter.ready_pairs, [7]);
        // At each port of its address.
        let at = |host, port| SocketAddr::new(socket(host).ip(), port);
        let paces = [at(3, 4791), at(3, 9), at(4, 4791)].map(|peer| adapter.pace(peer));
        assert_eq!(paces, [Pace::Far, Pace::Far, Pace::Prompt]);
    }

    /// Far peers share the room of their responses, and each of those that are slow there has its
    /// own.
    ///
    /// Spec: ROCE-191
    #[test]
    fn peers_that_are_far_are_slow_only_if_they_are_late_there() {
        let mut adapter = adapter(4);
        let prompt = share(&mut adapter, 0).responses;
        for key in [0, 1] {
            share(&mut adapter, key).due = 1;
            adapter.add_due(prompt, key);
        }
        adapter.begin_wait(2, prompt);
        adapter.now = Instant::from_micros(1_000);
        adapter.end_patience(prompt);
        for key in [0, 1] {
            adapter.change_buffers(key, &path(socket(key as u8 + 1)));
        }
        let far = share(&mut adapter, 0).responses;
        assert_ne!(far, prompt);
        let [first, second] = [0, 1].map(|key| *share(&mut adapter, key));
        assert_eq!((second.responses, second.pace), (far, Pace::Far));
        assert_eq!(first.pace, Pace::Far);
        // The second one waits for the first there.
        share(&mut adapter, 0).due_since = adapter.now;
        adapter.add_due(far, 0);
        adapter.begin_wait(1, far);
        let slow = Pace::Slow(socket(1));
        for (time, pace) in [(10_900, Pace::Far), (11_000, slow)] {
            adapter.now = Instant::from_micros(time);
            adapter.end_patience(far);
            assert_eq!(adapter.pace(socket(1)), pace, "{time}");
            assert_eq!(adapter.pace(socket(2)), Pace::Far, "{time}");
        }
        adapter.change_buffers(0, &path(socket(1)));
        let own = share(&mut adapter, 0).responses;
        assert!(![prompt, far].contains(&own));
        assert_eq!(share(&mut adapter, 1).responses, far);
    }

    /// A peer that goes from port to port is late all the same.
    ///
    /// Spec: ROCE-191
    #[test]
    fn what_is_due_stays_due_at_another_port() {
        let mut adapter = adapter(1);
        let since = Instant::from_micros(5);
        let due = share(&mut adapter, 0);
        (due.due, due.due_since) = (3, since);
        adapter.now = Instant::from_micros(900);
        let moved = SocketAddr::new(socket(1).ip(), 9);
        adapter.change_buffers(0, &path(moved));
        let Share { due, due_since, .. } = *share(&mut adapter, 0);
        assert_eq!((due, due_since), (3, since));
    }
}
