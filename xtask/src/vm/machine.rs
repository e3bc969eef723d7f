//! QEMU: the machine that the guest runs on.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::verdict::End;

/// What the machine consists of, and for how long it may run.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) qemu: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) image: PathBuf,
    /// MiB.
    pub(crate) memory: u64,
    pub(crate) cpus: u32,
    /// Whether one nanosecond of the guest is one instruction that it executed.
    pub(crate) icount: bool,
    pub(crate) seconds: u64,
}

/// The processors that a job gets: as many as asked, and only one where instructions are counted.
pub(crate) fn cpus(asked: Option<u32>, icount: bool) -> Result<u32> {
    match (asked, icount) {
        (Some(0), _) => bail!("a machine has at least one processor"),
        (Some(2..), true) => {
            bail!("instructions can be counted on one processor only: leave out --cpus")
        }
        (_, true) => Ok(1),
        (asked, false) => Ok(asked.unwrap_or(2)),
    }
}

/// The memory in MiB that a machine needs with an image of that many bytes, which is there twice while it is unpacked.
pub(crate) fn memory(image: u64) -> u64 {
    const MEBIBYTE: u64 = 1 << 20;
    const FOR_PROGRAMS: u64 = 768;
    const STEP: u64 = 256;
    (FOR_PROGRAMS + 2 * image.div_ceil(MEBIBYTE)).next_multiple_of(STEP)
}

impl Machine {
    fn arguments(&self, record: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = [
            "-machine",
            "pc",
            "-cpu",
            "max",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ]
        .map(OsString::from)
        .to_vec();
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
        pair("-append", &"console=ttyS0 quiet panic=-1 oops=panic");
        // The console, and the record of the guest's first process.
        pair("-chardev", &"stdio,id=console,signal=on");
        pair("-serial", &"chardev:console");
        let mut file = OsString::from("file,id=record,path=");
        // A comma would begin the next property.
        file.push(record.to_string_lossy().replace(',', ",,"));
        pair("-chardev", &file);
        pair("-serial", &"chardev:record");
        arguments
    }

    /// Runs the machine until it ends or its time is over, and copies its console to `console`.
    pub(crate) fn run(&self, record: &Path, console: impl Write + Send) -> Result<End> {
        // The machine ends with this process, even if that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.qemu);
        command.args(self.arguments(record));
        run(&mut command, self.seconds, console)
    }
}

fn run(command: &mut Command, seconds: u64, console: impl Write + Send) -> Result<End> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let output = child.stdout.take().context("standard output of QEMU")?;
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        // Copying may wait for whoever reads the console, and the time limit may not.
        scope.spawn(move || sender.send(copy(output, console)));
        match receiver.recv_timeout(Duration::from_secs(seconds)) {
            Ok(copied) => {
                if copied.is_err() {
                    child.kill()?;
                }
                let status = child.wait()?;
                copied.context("the console cannot be copied")?;
                if !status.success() {
                    bail!("QEMU failed: {status}");
                }
                Ok(End::Own)
            }
            Err(_) => {
                child.kill()?;
                child.wait()?;
                receiver.recv()?.context("the console cannot be copied")?;
                Ok(End::Limit(seconds))
            }
        }
    })
}

/// Copies to the end, without the returns of a serial line.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut space = [0; 4096];
    loop {
        let length = match from.read(&mut space) {
            Ok(0) => return to.flush(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
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
            seconds: 5,
        }
    }

    fn text(machine: &Machine, record: &str) -> String {
        let arguments = machine.arguments(Path::new(record));
        arguments.join(OsStr::new(" ")).into_string().expect("text")
    }

    #[test]
    fn a_machine_has_what_was_asked_for() {
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
            seconds,
            &mut console,
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
    fn what_takes_too_long_is_ended() {
        let (result, console) = shell("echo begun; exec sleep 1000", 1);
        assert_eq!(result.expect("ended"), End::Limit(1));
        assert_eq!(console, "begun\n");
    }

    #[test]
    fn what_never_stops_talking_is_ended() {
        let (result, console) = shell("exec yes", 1);
        assert_eq!(result.expect("ended"), End::Limit(1));
        assert!(console.starts_with("y\ny\n"));
    }

    #[test]
    fn without_a_place_for_the_console_the_machine_is_ended() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let result = run(Command::new("sh").args(["-c", "exec yes"]), 600, Closed);
        assert!(result.is_err());
    }

    #[test]
    fn a_machine_that_cannot_start_is_an_error() {
        let (result, _) = shell("exit 3", 60);
        assert!(result.is_err());
        assert!(run(&mut Command::new("/no/such/qemu"), 1, io::sink()).is_err());
    }
}
