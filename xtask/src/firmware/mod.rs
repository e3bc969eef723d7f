//! Images for bare machines: built, run in QEMU, compared with their expected logs, and measured.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use object::{
    File, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use xshell::{Shell, cmd};

mod ivshmem;
mod paravirtual;

use crate::workspace::Workspace;
use crate::{packages, panic_free, targets};
use paravirtual::{ARM, Machine, PC, RISC_V};

/// Arguments of the task.
#[derive(Args)]
pub(crate) struct Options {
    /// Update the expected logs with those of the images
    #[arg(long)]
    accept: bool,
    /// Run only the image for the paravirtual adapter, in a guest whose adapter uses soft-RoCE
    #[arg(long, conflicts_with = "accept")]
    nested: bool,
}

/// A processor, and the bounds of the fixed configuration on it.
struct Processor {
    triple: &'static str,
    bounds: Figures,
}

/// The size of an image in bytes, and the instructions of its longest call.
#[derive(Clone, Copy)]
struct Figures {
    flash: u64,
    memory: u64,
    stack: u64,
    instructions: u64,
}

/// The bounds are recorded values with room for other versions of the compiler: growth is noticed.
const PROCESSORS: &[Processor] = &[
    Processor {
        triple: "thumbv7em-none-eabihf",
        bounds: Figures {
            flash: 97 << 10,
            memory: 10 << 10,
            stack: 1 << 10,
            instructions: 28_000,
        },
    },
    Processor {
        triple: "thumbv6m-none-eabi",
        bounds: Figures {
            flash: 107 << 10,
            memory: 10 << 10,
            stack: 2900,
            instructions: 60_000,
        },
    },
];

/// The build folder of images, its subfolder for machines, and the log level.
const IMAGES: &str = "firmware";
const MACHINES: &str = "machines";
const LEVEL: &str = "info";
/// The machine that runs images for Cortex-M.
const MACHINE: &str = "mps2-an386";
/// The time limit of an image in seconds.
const TIME: &str = "60";
/// Statics that hold rings, registers and buffers.
const NOT_COUNTED: &[&str] = &[
    "measure::still::RINGS",
    "measure::still::WINDOW",
    "measure::setup::BUFFER",
    "measure::masked::COUNTS",
];

/// Builds and runs all images on all machines, and prints the table of their sizes.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.nested {
        return check_nested(workspace);
    }
    let images = Images::new(workspace)?;
    if options.accept {
        let log = images.log(PROCESSORS[0].triple, "tour")?;
        fs::write(images.expected("tour"), log)?;
        if let Some(log) = paravirtual::log(&images.of_machines(), &PC)? {
            fs::write(images.expected("paravirtual"), log)?;
        }
        let log = ivshmem::log(&images.of_machines(), &images.program)?;
        fs::write(images.expected("ivshmem"), log)?;
    }
    images.check_all(PROCESSORS, &[PC, ARM, RISC_V], options.accept)
}

/// Checks one microcontroller and the machines except RISC-V; the short form of `run`.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    Images::new(workspace)?.check_all(&PROCESSORS[..1], &[PC, ARM], false)
}

/// Checks that the paravirtual image logs the same over soft-RoCE, in a guest.
pub(crate) fn check_nested(workspace: &Workspace) -> Result<()> {
    paravirtual::check_nested(workspace, &Images::new(workspace)?.of_machines())
}

/// Lints the images of machines on a target that every toolchain has.
///
/// Clippy of the microcontrollers' images would need a target that the toolchain may lack. The
/// dependencies are built in the folder of the images.
pub(crate) fn lint(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    let target = workspace.target().join(IMAGES).join(MACHINES);
    let _folder = shell.push_dir(workspace.root().join("firmware"));
    let scope = ["--release", "--locked", "--target", PC.triple];
    let packages = ["machine", "paravirtual", "ivshmem"];
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    cmd!(
        shell,
        "cargo clippy --target-dir {target} {scope...} {packages...} -- --deny warnings"
    )
    .env("DEFMT_LOG", LEVEL)
    .run()?;
    Ok(())
}

struct Images {
    shell: Shell,
    folder: PathBuf,
    target: PathBuf,
    decoder: PathBuf,
    /// The program that shares memory with a machine.
    program: PathBuf,
}

impl Images {
    fn new(workspace: &Workspace) -> Result<Self> {
        let shell = workspace.shell.clone();
        packages::install_for(&shell, ["qemu-system-arm", "ld.lld"])?;
        let program = ivshmem::program(workspace)?;
        let folder = workspace.root().join("firmware");
        let target = workspace.target().join(IMAGES);
        let scope = ["--quiet", "--locked", "--package", "decode"];
        println!("  building the log decoder");
        {
            let _folder = shell.push_dir(&folder);
            cmd!(shell, "cargo build --target-dir {target} {scope...}")
                .quiet()
                .run()
                .context("the log decoder")?;
        }
        Ok(Self {
            shell,
            folder,
            decoder: target.join("debug/decode"),
            target,
            program,
        })
    }

    /// Returns the same with a separate build folder.
    ///
    /// Cargo runs one build of a folder at a time.
    fn of_machines(&self) -> Self {
        Self {
            shell: self.shell.clone(),
            folder: self.folder.clone(),
            decoder: self.decoder.clone(),
            program: self.program.clone(),
            target: self.target.join(MACHINES),
        }
    }

    /// Checks all images; those of microcontrollers and of machines in parallel.
    ///
    /// A build mostly occupies one processor.
    fn check_all(
        &self,
        processors: &[Processor],
        machines: &[Machine],
        accept: bool,
    ) -> Result<()> {
        let others = self.of_machines();
        thread::scope(|scope| {
            let others = scope.spawn(move || {
                machines
                    .iter()
                    .try_for_each(|machine| paravirtual::check(&others, machine))?;
                ivshmem::check(&others, &others.program)
            });
            let checked = processors.iter().try_for_each(|processor| {
                self.tour(processor)?;
                self.measure(processor, accept)
            });
            checked.and(others.join().expect("a lane does not panic"))
        })
    }

    fn expected(&self, image: &str) -> PathBuf {
        self.folder.join(image).join("expected.txt")
    }

    /// Builds an image; returns its path.
    fn build(&self, triple: &str, image: &str) -> Result<PathBuf> {
        let (shell, target) = (&self.shell, &self.target);
        // Cargo is quiet, because the lines of parallel builds would mix; this line announces the
        // build.
        println!("  {triple}: building {image}");
        let _folder = shell.push_dir(&self.folder);
        let scope = ["--release", "--package", image, "--target", triple];
        let build = cmd!(
            shell,
            "cargo build --quiet --locked --target-dir {target} {scope...}"
        );
        let build = build.quiet().env("DEFMT_LOG", LEVEL);
        targets::for_target(shell, triple, build)?
            .run()
            .with_context(|| format!("{image} for {triple}"))?;
        Ok(target.join(triple).join("release").join(image))
    }

    /// Runs an image until it ends with success; returns its output.
    ///
    /// The clock counts instructions, so that every run is the same.
    fn output(&self, image: &Path) -> Result<Vec<u8>> {
        let shell = &self.shell;
        let machine = cmd!(
            shell,
            "timeout {TIME} qemu-system-arm -M {MACHINE} -icount shift=6,sleep=off -nographic -monitor none -serial null
             -semihosting-config enable=on,target=native -kernel {image}"
        );
        let output = machine.quiet().ignore_status().output()?;
        ensure!(
            output.status.success(),
            "{} ended with {}:\n{}{}",
            image.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output.stdout)
    }

    /// Builds and runs an image; returns its decoded log.
    fn log(&self, triple: &str, image: &str) -> Result<String> {
        let image = self.build(triple, image)?;
        let frames = self.output(&image)?;
        self.decode(&image, frames)
    }

    /// Returns an image's log as text.
    fn decode(&self, image: &Path, frames: Vec<u8>) -> Result<String> {
        let (shell, decoder) = (&self.shell, &self.decoder);
        let decoder = cmd!(shell, "{decoder} {image}");
        Ok(decoder.quiet().stdin(frames).read()? + "\n")
    }

    /// Checks that an image logged the expected lines.
    fn compare(&self, image: &str, triple: &str, log: &str) -> Result<()> {
        let path = self.expected(image);
        let expected = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        compare(log, &expected)?;
        let lines = log.lines().count();
        println!("  {triple}: {image} logged the {lines} expected lines");
        Ok(())
    }

    /// Checks that the tour of the calls logs the expected lines.
    fn tour(&self, processor: &Processor) -> Result<()> {
        let log = self.log(processor.triple, "tour")?;
        self.compare("tour", processor.triple, &log)
    }

    /// Checks the calls against their recorded bounds; `accept` records new bounds first.
    fn check_calls(&self, calls: &BTreeMap<String, Call>, accept: bool) -> Result<()> {
        let path = self.folder.join("measure/bounds.txt");
        if accept {
            let lines = calls.iter().map(|(name, call)| {
                let Call {
                    stack,
                    instructions,
                    masked,
                    ..
                } = call;
                format!("{name} {stack} {instructions} {masked}\n")
            });
            fs::write(&path, lines.collect::<String>())?;
        }
        let bounds = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        within(calls, &bounds)
    }

    /// Checks that the fixed configuration stays within its bounds.
    fn measure(&self, processor: &Processor, accept: bool) -> Result<()> {
        let image = self.build(processor.triple, "measure")?;
        // It ends with success only if its handler may interrupt every call.
        self.output(&image.with_file_name("interrupted"))?;
        let output = self.output(&image)?;
        let output = String::from_utf8_lossy(&output);
        let lines = lines(&output)?;
        let bytes = fs::read(&image)?;
        let file = File::parse(&*bytes)?;
        free_of_panics(&file)?;
        let sizes = |kind| lines.iter().filter(move |line| line.kind == kind);
        let stack = sizes("stack").map(|line| line.number).max();
        let object = sizes("object").map(|line| line.number).sum::<u64>();
        let instructions = sizes("instructions").map(|line| line.number);
        let own = sizes("instructions").find(|line| line.name == "nothing");
        let own = own.context("the image reported no measurements")?.number;
        let found = Figures {
            flash: flash(&file),
            memory: memory(&file)? + object,
            stack: stack.context("the image reported no measured call")?,
            instructions: instructions.max().unwrap_or_default().saturating_sub(own),
        };
        let bounds = processor.bounds;
        println!("\n| {} | bytes | bound |\n|---|---|---|", processor.triple);
        let library = found.flash.saturating_sub(program(&file)?);
        println!("| flash without the measuring code | {library} | |");
        for (label, measured, bound) in [
            ("flash of the whole image", found.flash, bounds.flash),
            ("RAM without rings and buffers", found.memory, bounds.memory),
            ("stack of the deepest call", found.stack, bounds.stack),
        ] {
            println!("| {label} | {measured} | {bound} |");
        }
        for line in lines
            .iter()
            .filter(|line| matches!(line.kind, "object" | "storage"))
        {
            println!("| {} `{}` | {} | |", line.kind, line.name, line.number);
        }
        let calls = calls(&lines, own);
        println!(
            "\n| {} | stack | instructions | masked | masked commands |\n|---|---|---|---|---|",
            processor.triple
        );
        for (name, call) in &calls {
            let Call {
                stack,
                instructions,
                masked,
                commands,
            } = call;
            println!("| `{name}` | {stack} | {instructions} | {masked} | {commands} |");
        }
        if processor.triple == PROCESSORS[0].triple {
            self.check_calls(&calls, accept)?;
        }
        ensure!(
            found.flash <= bounds.flash
                && found.memory <= bounds.memory
                && found.stack <= bounds.stack
                && found.instructions <= bounds.instructions,
            "more than {} bytes of flash, {} of RAM, {} of stack or {} instructions",
            bounds.flash,
            bounds.memory,
            bounds.stack,
            bounds.instructions
        );
        Ok(())
    }
}

/// The cost of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Call {
    /// Bytes of stack.
    stack: u64,
    instructions: u64,
    /// The most instructions at a time with interrupts masked.
    masked: u64,
    /// Commands to the device with interrupts masked.
    commands: u64,
}

/// Returns the highest cost of each call, without the `own` instructions of the measurement.
fn calls(lines: &[Line<'_>], own: u64) -> BTreeMap<String, Call> {
    let mut calls = BTreeMap::<String, Call>::new();
    for line in lines {
        let highest: fn(&mut Call) -> &mut u64 = match line.kind {
            "stack" => |call| &mut call.stack,
            "instructions" => |call| &mut call.instructions,
            "masked" => |call| &mut call.masked,
            "commands" => |call| &mut call.commands,
            _ => continue,
        };
        let number = match line.kind {
            "instructions" => line.number.saturating_sub(own),
            _ => line.number,
        };
        let highest = highest(calls.entry(line.name.to_owned()).or_default());
        *highest = number.max(*highest);
    }
    calls
}

/// Refuses calls without a bound, or more than a tenth above it.
///
/// A line of bounds is a name, bytes of stack, instructions, and those with interrupts masked.
fn within(calls: &BTreeMap<String, Call>, bounds: &str) -> Result<()> {
    let mut known = BTreeMap::new();
    for line in bounds.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, stack, instructions, masked] = words[..] else {
            bail!("{line:?} is not a bound");
        };
        let bound = Call {
            stack: stack.parse()?,
            instructions: instructions.parse()?,
            masked: masked.parse()?,
            commands: 0,
        };
        known.insert(name, bound);
    }
    // The 16 leave room for small bounds.
    let most = |bound: u64| bound + bound / 10 + 16;
    for (name, call) in calls {
        ensure!(
            call.commands == 0,
            "{name} gives the device {} commands with interrupts masked",
            call.commands
        );
        let bound = known.remove(name.as_str());
        let bound = bound.with_context(|| format!("{name} has no recorded bound"))?;
        ensure!(
            call.stack <= most(bound.stack)
                && call.instructions <= most(bound.instructions)
                && call.masked <= most(bound.masked),
            "{name} takes {call:?}, above its bound {bound:?}"
        );
    }
    ensure!(known.is_empty(), "no image measures {known:?}");
    Ok(())
}

/// Refuses a log that differs from the expected one; names the first line that differs.
fn compare(log: &str, expected: &str) -> Result<()> {
    let mut log = log.lines();
    for (number, expected) in (1..).zip(expected.lines()) {
        match log.next() {
            Some(line) if line == expected => {}
            line => bail!(
                "line {number} must be\n  {expected}\nand is\n  {}",
                line.unwrap_or("missing")
            ),
        }
    }
    match log.next() {
        None => Ok(()),
        Some(line) => bail!("unexpected extra line:\n  {line}"),
    }
}

/// A line of the measuring image.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    kind: &'a str,
    name: &'a str,
    number: u64,
}

fn lines(text: &str) -> Result<Vec<Line<'_>>> {
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [kind, name, number] = words[..] else {
                bail!("{line:?} is not a measurement");
            };
            let number = number.parse()?;
            Ok(Line { kind, name, number })
        })
        .collect()
}

/// Refuses an image in which anything panics or allocates.
///
/// The image contains its panic handler only if something calls it.
fn free_of_panics(file: &File<'_>) -> Result<()> {
    let mut names = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name()?));
        if panic_free::is_forbidden(&name) || name.contains("core::fmt") {
            names.push(name);
        }
    }
    ensure!(names.is_empty(), "the image has {}", names.join(", "));
    Ok(())
}

/// Returns the bytes written to flash: code, constants and initial values of variables.
fn flash(file: &File<'_>) -> u64 {
    file.segments().map(|segment| segment.file_range().1).sum()
}

/// Returns the bytes of the functions of the measuring program and its device.
///
/// The frames around calls do not count: the compiler inlines into them calls that occur once.
fn program(file: &File<'_>) -> Result<u64> {
    let mut bytes = 0;
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text)
    {
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name()?));
        let own = ["measure::", "<measure::", "cortex_m"]
            .iter()
            .any(|start| name.starts_with(start));
        if own && !name.starts_with("measure::calls::run") {
            bytes += symbol.size();
        }
    }
    Ok(bytes)
}

/// Returns the bytes of variables, without rings, registers and buffers.
fn memory(file: &File<'_>) -> Result<u64> {
    let mut bytes: u64 = file
        .sections()
        .filter(|section| [".data", ".bss"].map(Ok).contains(&section.name()))
        .map(|section| section.size())
        .sum();
    let mut left_out = 0;
    for symbol in file.symbols() {
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name()?));
        if NOT_COUNTED.contains(&name.as_str()) {
            bytes = bytes.saturating_sub(symbol.size());
            left_out += 1;
        }
    }
    ensure!(
        left_out == NOT_COUNTED.len(),
        "the image has not all of {}",
        NOT_COUNTED.join(", ")
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_different_line_is_named() {
        assert!(compare("a\nb\n", "a\nb\n").is_ok());
        for (log, part) in [
            ("a\nx\n", "line 2 must be\n  b\nand is\n  x"),
            ("a\n", "and is\n  missing"),
            ("a\nb\nc\n", "extra line:\n  c"),
        ] {
            let refused = compare(log, "a\nb\n").expect_err("must be refused");
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }

    #[test]
    fn a_call_stays_within_its_bound() {
        let line = |kind, name, number| Line { kind, name, number };
        let given = |instructions, commands| {
            let lines = [
                line("stack", "ia_open", 100),
                line("instructions", "ia_open", 90),
                line("instructions", "ia_open", instructions),
                line("masked", "ia_open", instructions - 10),
                line("commands", "ia_open", commands),
                line("storage", "driver", 9000),
            ];
            calls(&lines, 8)
        };
        let measured = |instructions| given(instructions, 0);
        let bounds = "ia_open 100 100 120\n";
        assert!(within(&given(134, 1), bounds).is_err());
        assert!(within(&measured(134), bounds).is_ok());
        assert!(within(&measured(135), bounds).is_err());
        assert!(within(&measured(90), "").is_err());
        assert!(within(&measured(134), "ia_open 100 100 90\n").is_err());
        assert!(within(&measured(90), "ia_open 100 100 100\nia_close 1 1 1\n").is_err());
        assert!(within(&measured(90), "ia_open 100 100\n").is_err());
    }

    #[test]
    fn lines_have_a_kind_a_name_and_a_number() {
        let line = Line {
            kind: "stack",
            name: "ia_open",
            number: 96,
        };
        assert_eq!(lines("stack ia_open 0000000096\n").expect("a line"), [line]);
        assert!(lines("stack ia_open\n").is_err());
        assert!(lines("stack ia_open many\n").is_err());
    }
}
