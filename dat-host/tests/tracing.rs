//! Spans of connections and operations, as a subscriber sees them.

mod common;

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Pair, eventually};
use dat_host::Access;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span that has begun.
#[derive(Clone, Debug, Default)]
struct Seen {
    parent: Option<u64>,
    /// Name and fields.
    text: String,
    closed: bool,
}

static SPANS: Mutex<Option<HashMap<u64, Seen>>> = Mutex::new(None);
static EVENTS: Mutex<Vec<(Option<u64>, String)>> = Mutex::new(Vec::new());

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

/// Keeps all spans of the crate.
#[derive(Default)]
struct Collector(AtomicU64);

fn with<R>(act: impl FnOnce(&mut HashMap<u64, Seen>) -> R) -> R {
    act(SPANS.lock().unwrap().get_or_insert_default())
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "dat_host"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Text(&mut text));
        let parent = span.parent().map(Id::into_u64);
        let seen = Seen {
            parent,
            text,
            closed: false,
        };
        with(|spans| spans.insert(number, seen));
        Id::from_u64(number)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        with(|spans| {
            values.record(&mut Text(
                &mut spans.get_mut(&span.into_u64()).unwrap().text,
            ))
        });
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        let parent = event.parent().map(Id::into_u64);
        EVENTS.lock().unwrap().push((parent, text));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        with(|spans| spans.get_mut(&id.into_u64()).unwrap().closed = true);
        true
    }
}

/// Returns the spans whose text begins with `start`, by number.
fn spans(start: &str) -> Vec<(u64, Seen)> {
    with(|spans| {
        let mut found: Vec<_> = spans
            .iter()
            .filter(|(_, seen)| seen.text.starts_with(start))
            .map(|(number, seen)| (*number, seen.clone()))
            .collect();
        found.sort_by_key(|(number, _)| *number);
        found
    })
}

#[test]
fn connections_and_operations_have_spans() {
    tracing::subscriber::set_global_default(Collector::default()).unwrap();
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let connections = spans("connection");
    assert_eq!(connections.len(), 2, "{connections:?}");
    let near_span = connections
        .iter()
        .find(|(_, seen)| {
            seen.text
                .ends_with(&format!("ep={}", near.id().handle().to_raw()))
        })
        .expect("a span of the near endpoint")
        .0;

    let receive = far.recv(pair.far.buffer(64).unwrap());
    let window = pair.far.region(vec![0_u8; 16]).unwrap();
    let window = window.expose(.., Access::WRITE).to(&far).wait().unwrap();
    near.write(pair.near.copy(b"write").unwrap(), window.remote())
        .wait()
        .unwrap();
    near.send(pair.near.copy(b"a message").unwrap())
        .wait()
        .unwrap();
    receive.wait().unwrap();
    drop(window.revoke().wait());
    for (kind, length, transferred) in [
        ("write", 5, 5),
        ("send", 9, 9),
        ("receive", 64, 9),
        ("bind", 16, 0),
        ("unbind", 0, 0),
    ] {
        let found = spans(&format!("operation kind=\"{kind}\""));
        let [(_, seen)] = &found[..] else {
            panic!("{kind}: {found:?}");
        };
        let expected = format!(
            "operation kind=\"{kind}\" length={length} status=Success transferred={transferred}"
        );
        assert_eq!(seen.text, expected);
        assert!(seen.closed, "{kind}");
        let is_near = matches!(kind, "write" | "send");
        assert_eq!(seen.parent == Some(near_span), is_near, "{kind}");
    }

    // A refusal ends its span, with the words of the error.
    let foreign = pair.near_adapter.zone().unwrap().copy(b"foreign").unwrap();
    near.send(foreign).wait().unwrap_err();
    let refused = &spans("operation kind=\"send\"")[1].1;
    assert!(
        refused.closed && refused.text.contains("zone"),
        "{refused:?}"
    );

    // The span of an operation outlives its future.
    drop(near.recv(pair.near.buffer(8).unwrap()));
    let begun = spans("operation kind=\"receive\"").pop().unwrap();
    assert!(!begun.1.closed);
    drop((near, far));
    eventually("the spans end", || {
        spans("operation kind=\"receive\"")
            .iter()
            .all(|(_, seen)| seen.closed)
            && spans("connection").iter().all(|(_, seen)| seen.closed)
    });
    let ended = spans("operation kind=\"receive\"").pop().unwrap();
    assert!(ended.1.text.contains("status=Flushed"), "{}", ended.1.text);
    let events = EVENTS.lock().unwrap().clone();
    let established = events
        .iter()
        .filter(|(_, text)| text.contains("kind=Established"));
    assert_eq!(established.count(), 2, "{events:?}");
    let of_near = |(parent, text): &&(Option<u64>, String)| {
        *parent == Some(near_span) && text.contains("Established")
    };
    assert_eq!(events.iter().filter(of_near).count(), 1);
}
