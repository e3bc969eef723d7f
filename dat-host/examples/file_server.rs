//! A server of files: a client asks for a name, and reads the content by RDMA Reads.
//!
//! The server answers with a value that gives the client access to the file's memory. It has no
//! part in the transfer. A file that several clients read is in memory once.
//!
//! In two terminals:
//!
//! ```sh
//! cargo run -p dat-host --example file_server -- serve DIRECTORY
//! cargo run -p dat-host --example file_server -- fetch 127.0.0.1:7175 NAME > COPY
//! ```
//!
//! Without arguments, a server and three clients are threads of one process.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dat_host::{
    Adapter, Endpoint, Error, Listener, ReadRegion, RemoteSlice, Request, Result, Zone,
};

/// The connection qualifier of the server.
const PORT: u64 = 7175;
/// Longest name of a file in bytes.
const NAME: usize = 255;
/// Bytes of one RDMA Read.
const CHUNK: usize = 256 << 10;
/// Reads in flight.
const READS: usize = 8;

/// A file in memory.
type Content = ReadRegion<Arc<[u8]>>;

/// Files in memory, by name; all clients share them.
#[derive(Clone)]
struct Files {
    directory: PathBuf,
    zone: Zone,
    open: Arc<Mutex<HashMap<String, Content>>>,
}

impl Files {
    fn new(directory: &Path, zone: &Zone) -> Self {
        Self {
            directory: directory.to_owned(),
            zone: zone.clone(),
            open: Arc::default(),
        }
    }

    /// Returns the content of a file of the directory itself.
    fn get(&self, name: &str) -> Result<Content> {
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return Err(Error::Malformed("a name of a file without a directory"));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(name) {
            return Ok(known.clone());
        }
        let content = fs::read(self.directory.join(name)).map_err(Error::System)?;
        let region = self.zone.read_region(Arc::from(content))?;
        open.insert(name.to_owned(), region.clone());
        Ok(region)
    }
}

/// Serves each client on a thread, until the adapter is closed.
fn serve(files: &Files, listener: &Listener) {
    while let Ok(request) = listener.next().wait() {
        let files = files.clone();
        std::thread::spawn(move || {
            if let Err(error) = answer(&files, request) {
                eprintln!("a client: {error}");
            }
        });
    }
}

/// Answers the requests of a client until it disconnects.
///
/// The answer is the access to the file, or the text of an error. The access ends with the client's
/// next request.
fn answer(files: &Files, request: Request) -> Result<()> {
    let zone = &files.zone;
    let client = request.accept().wait()?;
    let mut _window = None;
    loop {
        let Ok(asked) = client.recv(zone.buffer(NAME)?).wait() else {
            return Ok(());
        };
        let name = String::from_utf8_lossy(&asked.memory);
        let reply = match files.get(&name) {
            Ok(region) => {
                let window = region.expose(..).to(&client).wait()?;
                let reply = zone.copy(&window.remote().to_bytes())?;
                _window = Some(window);
                reply
            }
            Err(error) => zone.copy(format!("{name}: {error}").as_bytes())?,
        };
        client.send(reply).wait()?;
    }
}

/// Fetches a file, with several reads in flight.
fn fetch(zone: &Zone, server: &Endpoint, name: &str) -> Result<Vec<u8>> {
    let reply = server.recv(zone.buffer(4096)?);
    server.send(zone.copy(name.as_bytes())?).wait()?;
    let reply = reply.wait()?.memory;
    let Ok(remote) = RemoteSlice::from_bytes(&reply) else {
        let text = String::from_utf8_lossy(&reply).into_owned();
        return Err(Error::System(std::io::Error::other(text)));
    };
    let length = remote.len();
    let chunks = (0..length).step_by(CHUNK).map(|start| {
        let end = length.min(start + CHUNK as u64);
        let part = remote.slice(start..end)?;
        Ok::<_, Error>(server.read(part, zone.buffer(part.len() as usize)?))
    });
    let mut content = Vec::with_capacity(length as usize);
    let mut pending = std::collections::VecDeque::new();
    for read in chunks {
        pending.push_back(read?);
        if pending.len() == READS
            && let Some(first) = pending.pop_front()
        {
            content.extend_from_slice(&first.wait()?);
        }
    }
    for read in pending {
        content.extend_from_slice(&read.wait()?);
    }
    Ok(content)
}

/// A server and three clients in this process.
fn demo(address: Option<&str>) -> Result<()> {
    let directory = tempfile::tempdir().map_err(Error::System)?;
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    fs::write(directory.path().join("numbers"), &content).map_err(Error::System)?;
    let zone = Adapter::open(address.unwrap_or("mock://files"))?.zone()?;
    let server = (zone.address()?, PORT);
    let listener = zone.listen(PORT)?;
    let files = Files::new(directory.path(), &zone);
    std::thread::spawn(move || serve(&files, &listener));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|number| {
                let content = &content;
                scope.spawn(move || {
                    let own = format!("mock://client{number}");
                    let zone = Adapter::open(address.unwrap_or(&own))?.zone()?;
                    let server = zone.connect(server).wait()?;
                    assert!(fetch(&zone, &server, "numbers")? == *content);
                    assert!(fetch(&zone, &server, "missing").is_err());
                    assert!(fetch(&zone, &server, "../numbers").is_err());
                    assert!(fetch(&zone, &server, "numbers")? == *content);
                    server.disconnect().wait()
                })
            })
            .collect();
        for client in clients {
            client.join().expect("a client does not panic")?;
        }
        println!("3 clients fetched {} bytes twice", content.len());
        Ok(())
    })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => demo(None),
        ["demo", address] => demo(Some(address)),
        ["serve", directory] => {
            let zone = Adapter::open("roce://127.0.0.1")?.zone()?;
            let listener = zone.listen(PORT)?;
            println!(
                "serving {directory} at {}, qualifier {PORT}",
                zone.address()?
            );
            serve(&Files::new(Path::new(directory), &zone), &listener);
            Ok(())
        }
        ["fetch", peer, name] => {
            let zone = Adapter::open("roce://127.0.0.2")?.zone()?;
            let server = zone.connect(peer).wait()?;
            let content = fetch(&zone, &server, name)?;
            std::io::stdout()
                .write_all(&content)
                .map_err(Error::System)?;
            server.disconnect().wait()
        }
        _ => Err(Error::Malformed(
            "`demo ADDRESS`, `serve DIRECTORY` or `fetch HOST:PORT NAME`",
        )),
    }
}
