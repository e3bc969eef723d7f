use std::thread;
use std::time::Duration;

use verbs_model::{SCRIPTED, lower, make_readable};

use super::*;

/// An adapter whose descriptors the test raises, and which has no thread.
struct Raised {
    watch: Arc<Watch>,
    sources: Arc<Sources>,
}

impl Raised {
    fn new() -> Self {
        let context = Arc::new(Context::open(SCRIPTED).expect("a device"));
        let watch = Arc::new(Watch::new(context.clone()).expect("descriptors"));
        let signal = Arc::new(Signal::new());
        for source in [Source::Connections, Source::Device, Source::Completions] {
            assert!(signal.take_ready(source));
        }
        let sources = watch.enter(&signal, &context).expect("a number");
        Self { watch, sources }
    }

    /// Makes the connection channel.
    fn connecting() -> Self {
        let raised = Self::new();
        raised.sources.channel().expect("watched");
        raised
    }

    fn connection_event(&self) {
        make_readable(self.sources.made_channel().expect("it was made").fd());
    }

    /// Takes the connection events; returns true if there were any.
    fn take_connection_events(&self) -> bool {
        lower(self.sources.made_channel().expect("it was made").fd())
    }

    /// Handles the events that the thread would get now; returns true if there were any.
    fn tell(&self) -> bool {
        self.sources.signal.calm();
        self.watch.handle(Some(Duration::ZERO)).expect("no signal");
        !self.sources.signal.is_quiet()
    }

    /// As `tell`, and takes the mark of connections.
    fn tells_of_connections(&self) -> bool {
        self.tell() && self.sources.signal.take_ready(Source::Connections)
    }
}

/// Spec: GEN-09, EVW-01
#[test]
fn a_polling_program_is_woken_for_the_first_connection_event_only() {
    let raised = Raised::connecting();
    raised.connection_event();
    assert!(raised.tells_of_connections());
    for _ in 0..3 {
        raised.connection_event();
        assert!(!raised.tell(), "it looks by itself");
        raised.sources.found_connection();
    }
    assert!(raised.take_connection_events());
    for _ in 1..LOOKS {
        assert!(!raised.sources.tells_of_connections());
    }
    assert!(raised.sources.tells_of_connections() && raised.sources.tells_of_connections());
    assert!(!raised.tell());
    raised.connection_event();
    assert!(raised.tells_of_connections());
}

/// Spec: GEN-09, EVW-01
#[test]
fn an_event_between_poll_and_watch_is_reported() {
    let raised = Raised::connecting();
    raised.connection_event();
    assert!(raised.tells_of_connections());
    assert!(raised.take_connection_events());
    while !raised.sources.tells_of_connections() {
        // After the poll that found nothing.
        raised.connection_event();
    }
    assert!(raised.tells_of_connections());
}

/// Spec: EVW-01
#[test]
fn a_program_that_uses_the_thread_gets_each_connection_event() {
    let raised = Raised::connecting();
    raised.connection_event();
    assert!(raised.tells_of_connections());
    raised.sources.tell_all().expect("descriptors");
    for _ in 0..3 {
        raised.connection_event();
        assert!(raised.tells_of_connections());
        assert!(raised.sources.tells_of_connections());
    }
}

/// Channels that are made later are reported too.
///
/// Spec: GEN-09, EVW-01
#[test]
fn a_program_that_uses_the_thread_gets_events_of_later_channels() {
    let raised = Raised::new();
    raised.sources.tell_all().expect("descriptors");
    let completions = raised.sources.completions().expect("watched").fd();
    raised.sources.channel().expect("watched");
    assert!(!raised.tell());
    for _ in 0..3 {
        make_readable(completions);
        assert!(raised.tell() && raised.sources.signal.take_ready(Source::Completions));
        raised.connection_event();
        assert!(raised.tells_of_connections());
    }
}

/// Spec: EVW-01
#[test]
fn a_new_sleeper_finds_the_thread_watching() {
    const CONNECTIONS: u32 = 1 << Source::Connections as u32;
    let raised = Raised::connecting();
    raised.connection_event();
    assert!(raised.tells_of_connections());
    assert!(raised.take_connection_events());
    let sleeper = Epoll::new().expect("a descriptor");
    raised.sources.watch_first(&sleeper).expect("descriptors");
    assert!(raised.sources.tells_of_connections());
    raised.connection_event();
    let woken = sleeper.wait(Some(Duration::ZERO)).expect("no signal");
    assert_eq!(woken, CONNECTIONS);
    assert!(raised.tells_of_connections(), "the sleeper does not sleep");
    raised.connection_event();
    assert!(!raised.tell(), "it has left them again");
}

/// No connection event is lost between a poller, the thread and a peer.
///
/// The poller polls only marked sources, and the peer sends each event once the last one was
/// noticed. A failure hangs.
///
/// Spec: GEN-09, EVW-01
#[test]
fn a_polling_program_loses_no_connection_event() {
    const EVENTS: u32 = 300;
    let (raised, ends) = (Raised::connecting(), AtomicBool::new(false));
    let signal = &raised.sources.signal;
    let noticed = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                let longest = Some(Duration::from_millis(1));
                let _interrupted = raised.watch.handle(longest);
            }
        });
        scope.spawn(|| {
            for sent in 0..EVENTS {
                while noticed.load(Ordering::Acquire) != sent {
                    thread::yield_now();
                }
                raised.connection_event();
            }
        });
        while noticed.load(Ordering::Relaxed) != EVENTS {
            if !signal.take_ready(Source::Connections) {
                thread::yield_now();
                continue;
            }
            if raised.take_connection_events() {
                signal.set_ready(Source::Connections);
                raised.sources.found_connection();
                noticed.fetch_add(1, Ordering::Release);
            } else if !raised.sources.tells_of_connections() {
                signal.set_ready(Source::Connections);
            }
        }
        ends.store(true, Ordering::Release);
    });
}
