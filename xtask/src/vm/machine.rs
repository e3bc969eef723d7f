//! QEMU, the machine that the guest runs on.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::verdict::End;
use crate::process::Running;

/// Interval between checks of the guest's requests.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Descriptor of QEMU's end of the cable.
///
/// Its standard input belongs to the console.
const CABLE: u8 = 3;

/// One end of the cable that joins the networks of two guests.
#[derive(Debug)]
pub(crate) struct Cable {
    /// Number of the guest at this end.
    guest: u8,
    /// Number of the guest at the other end.
    peer: u8,
    end: OwnedFd,
    /// The file that gets every packet of this end.
    capture: Option<PathBuf>,
}

impl Cable {
    /// Returns both ends of a new cable: those of guest 1 and guest 2.
    ///
    /// Data for an end without an owner is lost, as on a real cable. With a stream, QEMU would make
    /// the card wait for ever.
    pub(crate) fn pair() -> Result<(Self, Self)> {
        let (one, two) = UnixDatagram::pair().context("a cable between two guests")?;
        let end = |guest, peer, end: UnixDatagram| Self {
            guest,
            peer,
            end: end.into(),
            capture: None,
        };
        Ok((end(1, 2, one), end(2, 1, two)))
    }

    /// Captures the packets of this end in a file.
    pub(crate) fn captured_in(self, file: Option<PathBuf>) -> Self {
        Self {
            capture: file,
            ..self
        }
    }
}

/// Time limits of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Most seconds without output on the console.
    pub(crate) silence: u64,
    /// Most seconds in total.
    pub(crate) limit: u64,
}

impl Patience {
    /// Returns the limits of a job that takes `seconds` on a quiet machine.
    ///
    /// A machine under load gets up to four times as much while its console makes progress.
    pub(crate) fn of_job(seconds: u64) -> Self {
        const SLOWEST: u64 = 4;
        Self {
            silence: seconds,
            limit: seconds.saturating_mul(SLOWEST),
        }
    }

    /// Returns the time left at `now`, with the last output at `last_output`.
    ///
    /// Both count from the machine's start. Without time left, returns the reason for the end.
    fn left(self, now: Duration, last_output: Duration) -> Result<Duration, End> {
        let silence = last_output + Duration::from_secs(self.silence);
        let limit = Duration::from_secs(self.limit);
        let left = silence.min(limit).saturating_sub(now);
        if !left.is_zero() {
            return Ok(left);
        }
        Err(if limit <= silence {
            End::Limit(self.limit)
        } else {
            End::Silence(self.silence)
        })
    }

    /// Returns a limit of `seconds` in total.
    pub(crate) fn exactly(seconds: u64) -> Self {
        Self {
            silence: seconds,
            limit: seconds,
        }
    }
}

/// Parts of the machine, and its time limits.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) qemu: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) image: PathBuf,
    /// Memory in MiB.
    pub(crate) memory: u64,
    pub(crate) cpus: u32,
    /// Set if one nanosecond of the guest is one executed instruction.
    pub(crate) icount: bool,
    pub(crate) patience: Patience,
}

/// Returns the number of processors: `requested`, or 1 if instructions are counted.
pub(crate) fn cpus(requested: Option<u32>, icount: bool) -> Result<u32> {
    match (requested, icount) {
        (Some(0), _) => bail!("the guest needs at least one processor"),
        (Some(2..), true) => {
            bail!("instructions can be counted on one processor only: remove --cpus")
        }
        (_, true) => Ok(1),
        (requested, false) => Ok(requested.unwrap_or(2)),
    }
}

/// Returns the memory in MiB that a machine needs with an image of `image` bytes.
///
/// While the image is unpacked, memory holds it twice.
pub(crate) fn memory(image: u64) -> u64 {
    const MEBIBYTE: u64 = 1 << 20;
    const FOR_PROGRAMS: u64 = 768;
    const STEP: u64 = 256;
    (FOR_PROGRAMS + 2 * image.div_ceil(MEBIBYTE)).next_multiple_of(STEP)
}

impl Machine {
    fn arguments(&self, record: &Path, cable: Option<&Cable>) -> Vec<OsString> {
        let plain = "-machine pc -cpu max -nodefaults -no-user-config -display none -no-reboot";
        let mut arguments: Vec<OsString> = plain.split(' ').map(OsString::from).collect();
        let mut pair = |key: &str, value: &dyn AsRef<OsStr>| {
            arguments.extend([key.into(), value.as_ref().to_owned()]);
        };
        if self.icount {
            pair("-accel", &"tcg,thread=single");
            pair("-icount", &"shift=0,sleep=off");
        } else {
            pair("-accel", &"tcg,thread=multi");
        }
        pair("-smp", &self.cpus.to_string());
        pair("-m", &format!("{}M", self.memory));
        pair("-kernel", &self.kernel);
        pair("-initrd", &self.image);
        // On a busy host, no timer tick may come while the kernel checks for ticks.
        let mut line = "console=ttyS0 quiet panic=-1 oops=panic no_timer_check".to_owned();
        // A comma would begin the next property.
        let as_value = |file: &Path| file.to_string_lossy().replace(',', ",,");
        if let Some(Cable {
            guest,
            peer,
            capture,
            ..
        }) = cable
        {
            // The kernel passes unknown arguments on, as variables of the first process.
            line += &format!(" GUEST={guest} PEER={peer}");
            pair("-netdev", &format!("socket,id=cable,fd={CABLE}"));
            let card = format!("virtio-net-pci,netdev=cable,mac=52:54:00:00:00:{guest:02x}");
            // The guest does not boot from the network.
            pair("-device", &format!("{card},romfile="));
            if let Some(file) = capture {
                let file = as_value(file);
                let filter = format!("filter-dump,id=capture,netdev=cable,file={file}");
                pair("-object", &filter);
            }
        }
        pair("-append", &line);
        // The console, and the record of the guest's first process.
        pair("-chardev", &"stdio,id=console,signal=on");
        pair("-serial", &"chardev:console");
        let record = format!("file,id=record,path={}", as_value(record));
        pair("-chardev", &record);
        pair("-serial", &"chardev:record");
        arguments
    }

    fn command(&self, record: &Path, cable: Option<Cable>) -> Command {
        let arguments = self.arguments(record, cable.as_ref());
        // The machine ends with this process, even if the process is killed.
        let setpriv = ["setpriv", "--pdeathsig", "KILL", "--"];
        let mut command = match cable {
            Some(cable) => {
                let mut command = Command::new("sh");
                let script = format!("exec \"$@\" {CABLE}<&0 0</dev/null");
                command.args(["-c", &script, "sh"]).args(setpriv);
                command.stdin(cable.end);
                command
            }
            None => {
                let mut command = Command::new(setpriv[0]);
                command.args(&setpriv[1..]).stdin(Stdio::null());
                command
            }
        };
        command.arg(&self.qemu).args(arguments);
        command
    }

    /// Runs the machine until it ends or its time is over, and copies its console.
    ///
    /// Calls `meanwhile` repeatedly.
    pub(crate) fn run(
        &self,
        record: &Path,
        console: impl Write + Send,
        cable: Option<Cable>,
        meanwhile: impl FnMut(),
    ) -> Result<End> {
        let mut command = self.command(record, cable);
        run(&mut command, self.patience, console, meanwhile)
    }

    /// Starts the machine, which runs until it is killed.
    pub(crate) fn start(&self, record: &Path, console: File, cable: Cable) -> Result<Running> {
        let mut command = self.command(record, Some(cable));
        start(command.stdout(console)).map(Running)
    }
}

fn start(command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))
}

fn run(
    command: &mut Command,
    patience: Patience,
    console: impl Write + Send,
    mut meanwhile: impl FnMut(),
) -> Result<End> {
    let mut child = start(command.stdout(Stdio::piped()))?;
    let output = child.stdout.take().context("standard output of QEMU")?;
    let begin = Instant::now();
    // Milliseconds from the start to the last output.
    let last_output = AtomicU64::new(0);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let note_output = || {
            let passed = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            last_output.store(passed, Ordering::Relaxed);
        };
        // Copying may wait for the reader of the console; the time limit does not.
        scope.spawn(move || sender.send(copy(output, console, note_output)));
        loop {
            let last = Duration::from_millis(last_output.load(Ordering::Relaxed));
            let left = patience.left(begin.elapsed(), last);
            match receiver.recv_timeout(left.unwrap_or_default().min(POLL_INTERVAL)) {
                Ok(copied) => {
                    if copied.is_err() {
                        child.kill()?;
                    }
                    let status = child.wait()?;
                    copied.context("the console cannot be copied")?;
                    if !status.success() {
                        bail!("QEMU failed: {status}");
                    }
                    return Ok(End::Own);
                }
                Err(_) => match left {
                    Ok(_) => meanwhile(),
                    Err(end) => {
                        child.kill()?;
                        child.wait()?;
                        receiver.recv()?.context("the console cannot be copied")?;
                        return Ok(end);
                    }
                },
            }
        }
    })
}

/// Copies to the end, without the carriage returns of a serial line.
///
/// Calls `note_output` for each part.
fn copy(mut from: impl Read, mut to: impl Write, note_output: impl Fn()) -> io::Result<()> {
    let mut space = [0; 4096];
    loop {
        let length = match from.read(&mut space) {
            Ok(0) => return to.flush(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        note_output();
        let mut chunk = space[..length].to_vec();
        chunk.retain(|byte| *byte != b'\r');
        to.write_all(&chunk)?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            qemu: "qemu".into(),
            kernel: "kernel".into(),
            image: "image".into(),
            memory: 512,
            cpus: 2,
            icount: false,
            patience: Patience::exactly(5),
        }
    }

    fn text(machine: &Machine, record: &str) -> String {
        let arguments = machine.arguments(Path::new(record), None);
        arguments.join(OsStr::new(" ")).into_string().expect("text")
    }

    #[test]
    fn a_machine_has_the_requested_parts() {
        let plain = text(&machine(), "record");
        assert!(plain.contains("-smp 2 -m 512M -kernel kernel -initrd image"));
        assert!(!plain.contains("icount"));
        let counting = text(
            &Machine {
                icount: true,
                ..machine()
            },
            "a,b",
        );
        assert!(counting.contains("-icount shift=0,sleep=off"));
        assert!(counting.contains("path=a,,b"));
    }

    #[test]
    fn two_guests_have_their_own_network_cards() {
        let (one, two) = Cable::pair().expect("cable");
        let text = |cable: &Cable| {
            let arguments = machine().arguments(Path::new("record"), Some(cable));
            arguments.join(OsStr::new(" ")).into_string().expect("text")
        };
        let (one, two) = (text(&one), text(&two));
        assert!(one.contains("GUEST=1 PEER=2") && two.contains("GUEST=2 PEER=1"));
        assert!(one.contains("mac=52:54:00:00:00:01") && two.contains("mac=52:54:00:00:00:02"));
        assert!(one.contains("socket,id=cable,fd=3"));
        assert!(!one.contains("filter-dump"));
        let (captured, _other) = Cable::pair().expect("cable");
        let captured = captured.captured_in(Some("a,b.pcap".into()));
        let all = "-object filter-dump,id=capture,netdev=cable,file=a,,b.pcap";
        assert!(text(&captured).contains(all));
        assert!(!self::text(&machine(), "record").contains("cable"));
    }

    #[test]
    fn the_cable_joins_two_machines_and_ends_with_either() {
        let mut talking = machine();
        // Replaces QEMU: sends a word through the cable, and keeps running.
        let folder = tempfile::tempdir().expect("folder");
        talking.qemu = folder.path().join("qemu");
        std::fs::write(&talking.qemu, "#!/bin/sh\necho word >&3\nexec sleep 1000\n")
            .expect("script");
        let mut mode = std::fs::metadata(&talking.qemu)
            .expect("script")
            .permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&talking.qemu, mode).expect("script");

        let (one, two) = Cable::pair().expect("cable");
        let console = tempfile::tempfile().expect("file");
        let mut running = talking
            .start(Path::new("record"), console, two)
            .expect("started");
        let other = UnixDatagram::from(one.end);
        let mut word = [0; 5];
        other.recv(&mut word).expect("word");
        assert_eq!(&word, b"word\n");
        assert!(!running.is_over().expect("state"));
        drop(running);
        assert!(other.send(&word).is_err());
    }

    #[test]
    fn the_callback_runs_repeatedly_while_a_machine_runs() {
        let mut looks = 0;
        let mut command = Command::new("sh");
        command.args(["-c", "exec sleep 1000"]);
        let end = run(&mut command, Patience::exactly(1), io::sink(), || {
            looks += 1;
        });
        assert_eq!(end.expect("ended"), End::Limit(1));
        assert!(looks > 1);
    }

    #[test]
    fn instructions_are_counted_on_one_processor() {
        assert_eq!(cpus(None, true).expect("default"), 1);
        assert_eq!(cpus(Some(1), true).expect("one"), 1);
        assert!(cpus(Some(2), true).is_err());
        assert_eq!(cpus(None, false).expect("default"), 2);
        assert_eq!(cpus(Some(4), false).expect("four"), 4);
        assert!(cpus(Some(0), false).is_err());
    }

    #[test]
    fn memory_grows_with_the_image() {
        assert_eq!(memory(0), 768);
        assert_eq!(memory(1), 1024);
        assert_eq!(memory(100 << 20), 1024);
        assert_eq!(memory(400 << 20), 1792);
    }

    fn shell(script: &str, seconds: u64) -> (Result<End>, String) {
        let mut console = Vec::new();
        let result = run(
            Command::new("sh").args(["-c", script]),
            Patience::exactly(seconds),
            &mut console,
            || (),
        );
        (result, String::from_utf8(console).expect("text"))
    }

    #[test]
    fn the_console_is_copied_to_its_end() {
        let (result, console) = shell("printf 'one\\r\\ntwo'", 60);
        assert_eq!(result.expect("ended"), End::Own);
        assert_eq!(console, "one\ntwo");
    }

    #[test]
    fn a_machine_that_exceeds_its_limit_is_ended() {
        let (result, console) = shell("echo begun; exec sleep 1000", 1);
        assert_eq!(result.expect("ended"), End::Limit(1));
        assert_eq!(console, "begun\n");
    }

    /// A machine under load gets more time while its console makes progress.
    #[test]
    fn a_silent_machine_is_ended_and_a_busy_one_is_not() {
        let patience = Patience::of_job(10);
        let left = |now, last_output| {
            patience.left(Duration::from_secs(now), Duration::from_secs(last_output))
        };
        assert_eq!(left(9, 0), Ok(Duration::from_secs(1)));
        assert_eq!(left(10, 0), Err(End::Silence(10)));
        assert_eq!(left(35, 30), Ok(Duration::from_secs(5)));
        assert_eq!(left(40, 39), Err(End::Limit(40)));
        let exact = Patience::exactly(10);
        let ten = Duration::from_secs(10);
        assert_eq!(exact.left(ten, Duration::ZERO), Err(End::Limit(10)));
        assert_eq!(exact.left(ten, ten), Err(End::Limit(10)));
    }

    #[test]
    fn a_machine_with_endless_output_is_ended() {
        let (result, console) = shell("exec yes", 1);
        assert_eq!(result.expect("ended"), End::Limit(1));
        assert!(console.starts_with("y\ny\n"));
    }

    #[test]
    fn a_console_that_cannot_be_written_ends_the_machine() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let result = run(
            Command::new("sh").args(["-c", "exec yes"]),
            Patience::exactly(600),
            Closed,
            || (),
        );
        assert!(result.is_err());
    }

    #[test]
    fn a_machine_that_cannot_start_is_an_error() {
        let (result, _) = shell("exit 3", 60);
        assert!(result.is_err());
        let mut command = Command::new("/no/such/qemu");
        assert!(run(&mut command, Patience::exactly(1), io::sink(), || ()).is_err());
    }
}
