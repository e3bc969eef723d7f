//! A key-value table that clients read by RDMA Reads, without the server's processor.
//!
//! The server changes the table while a client reads. Each entry has a checksum, so the client
//! sees an entry that was read in the middle of a change, and reads it again.
//!
//! `cargo run -p dat-host --example key_value [ADDRESS]`

use std::sync::atomic::{AtomicBool, Ordering};

use dat_host::{Access, Adapter, Endpoint, Peer, RemoteSlice, Result, Window, Zone};

/// Entries of the table: a power of two.
const ENTRIES: u64 = 1024;
/// Bytes of an entry: key, value, checksum of both.
const ENTRY: usize = 24;
/// Rounds in which the server changes all values.
const ROUNDS: u64 = 5000;

fn mix(word: u64) -> u64 {
    (word ^ word >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn encode(key: u64, value: u64) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..8].copy_from_slice(&key.to_le_bytes());
    entry[8..16].copy_from_slice(&value.to_le_bytes());
    entry[16..].copy_from_slice(&mix(key ^ mix(value)).to_le_bytes());
    entry
}

/// Returns key and value; `None` if the entry changed while it was read.
fn decode(entry: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u64::from_le_bytes(entry.get(at..at + 8)?.try_into().ok()?));
    let (key, value) = (word(0)?, word(8)?);
    (word(16)? == mix(key ^ mix(value))).then_some((key, value))
}

/// Place of a key, if no other key is there.
fn index(key: u64) -> u64 {
    mix(key) >> 32 & (ENTRIES - 1)
}

/// The table at the server.
struct Table(Window<Vec<u8>>);

impl Table {
    fn put(&self, key: u64, value: u64) -> Result<()> {
        self.0
            .store(index(key) as usize * ENTRY, &encode(key, value))
    }
}

/// The table as a client sees it.
struct RemoteTable {
    zone: Zone,
    server: Endpoint,
    table: RemoteSlice,
    /// Reads that found an entry in the middle of a change.
    repeated: u64,
}

impl RemoteTable {
    fn open(zone: Zone, server: impl Into<Peer>) -> Result<Self> {
        let server = zone.connect(server).wait()?;
        let address = server.recv(zone.buffer(RemoteSlice::ENCODED)?).wait()?;
        Ok(Self {
            table: RemoteSlice::from_bytes(&address.memory)?,
            zone,
            server,
            repeated: 0,
        })
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let start = index(key) * ENTRY as u64;
        let entry = self.table.slice(start..start + ENTRY as u64)?;
        let mut buffer = self.zone.buffer(ENTRY)?;
        loop {
            buffer = self.server.read(entry, buffer).wait()?;
            match decode(&buffer) {
                Some((found, value)) => return Ok((found == key).then_some(value)),
                None => self.repeated += 1,
            }
        }
    }
}

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let open = |mock| Adapter::open(address.as_deref().unwrap_or(mock))?.zone();
    let (zone, reader) = (open("mock://table")?, open("mock://reader")?);
    let server = (zone.address()?, 7174);
    let listener = zone.listen(7174)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let client = scope.spawn(|| -> Result<(u64, u64)> {
            let mut table = RemoteTable::open(reader, server)?;
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads == 0 {
                let value = table.get(7)?.expect("the key stays in the table");
                assert!(value % 1000 == 7, "{value} is no value of key 7");
                reads += 1;
            }
            assert_eq!(table.get(8)?, Some(1000 * ROUNDS + 8));
            assert_eq!(table.get(1_000_000)?, None);
            table.server.disconnect().wait()?;
            Ok((reads, table.repeated))
        });

        let peer = listener.next().wait()?.accept().wait()?;
        let memory = zone.region(vec![0; ENTRIES as usize * ENTRY])?;
        let table = Table(memory.expose(.., Access::READ).to(&peer).wait()?);
        (0..100).try_for_each(|key| table.put(key, key))?;
        peer.send(zone.copy(&table.0.remote().to_bytes())?).wait()?;
        for round in 1..=ROUNDS {
            (0..100).try_for_each(|key| table.put(key, 1000 * round + key))?;
        }
        done.store(true, Ordering::Relaxed);
        peer.ended().wait();
        let (reads, repeated) = client.join().expect("the client does not panic")?;
        println!("{reads} reads of a table that changes, {repeated} of them repeated");
        Ok(())
    })
}
