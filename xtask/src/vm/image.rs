//! The guest's file system: an initramfs archive made of this machine's programs.

use anyhow::{Context, Result, bail};
use cpio::newc;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use xshell::{Shell, cmd};

/// The guest's folder of programs that are not installed on this machine.
const ADDED: &str = "/usr/local/bin";

/// The files of the guest, by their path in the guest.
pub(crate) struct Image<'a> {
    shell: &'a Shell,
    entries: BTreeMap<PathBuf, Entry>,
}

enum Entry {
    Folder,
    Link(PathBuf),
    Device { major: u32, minor: u32 },
    Copy { source: PathBuf, mode: u32 },
    Text { text: Vec<u8>, mode: u32 },
}

impl<'a> Image<'a> {
    /// Returns an image with the folders of every guest, laid out as on this machine.
    pub(crate) fn new(shell: &'a Shell) -> Result<Self> {
        let mut image = Self {
            shell,
            entries: BTreeMap::new(),
        };
        for name in ["/bin", "/sbin", "/lib", "/lib64"] {
            let path = Path::new(name);
            if let Ok(target) = fs::read_link(path) {
                image.add(path, Entry::Link(target))?;
            }
        }
        for name in [
            "/dev", "/etc", "/proc", "/root", "/run", "/sys", "/tmp", "/var",
        ] {
            image.add(Path::new(name), Entry::Folder)?;
        }
        // The kernel opens it for the first process, before anything is mounted on /dev.
        image.add(
            Path::new("/dev/console"),
            Entry::Device { major: 5, minor: 1 },
        )?;
        Ok(image)
    }

    /// Adds a file with this content.
    pub(crate) fn text(
        &mut self,
        path: &str,
        text: impl Into<Vec<u8>>,
        executable: bool,
    ) -> Result<()> {
        let mode = if executable { 0o755 } else { 0o644 };
        let text = text.into();
        self.add(Path::new(path), Entry::Text { text, mode })
    }

    /// Returns true if any folder of programs has a file of that name.
    pub(crate) fn has_program(&self, name: &OsStr) -> Result<bool> {
        for folder in ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"] {
            if self
                .entries
                .contains_key(&guest_path(&Path::new(folder).join(name))?)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a symbolic link, unless the path exists.
    pub(crate) fn link(&mut self, path: &Path, target: &str) -> Result<()> {
        let path = guest_path(path)?;
        if self.entries.contains_key(&path) {
            return Ok(());
        }
        self.add(&path, Entry::Link(PathBuf::from(target)))
    }

    /// Adds a file of this machine under its own path, with its shared libraries.
    pub(crate) fn installed(&mut self, file: &Path) -> Result<()> {
        self.copy(file, &guest_path(file)?, 0)
    }

    /// Adds a file as a program of the search path, with its shared libraries.
    pub(crate) fn program(&mut self, file: &Path, name: &OsStr) -> Result<()> {
        let path = Path::new(ADDED).join(name);
        if self.entries.contains_key(&path) {
            bail!("two programs have the name {}", name.display());
        }
        self.copy(file, &path, 0o111)
    }

    /// Adds a file with its permissions on this machine and the given ones.
    fn copy(&mut self, file: &Path, path: &Path, permissions: u32) -> Result<()> {
        let metadata =
            fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
        if !metadata.is_file() {
            bail!("{} is not a file", file.display());
        }
        let mode = metadata.permissions().mode() & 0o777 | permissions;
        let source = file.to_path_buf();
        self.add(path, Entry::Copy { source, mode })?;
        if is_elf(file)? {
            for library in libraries(self.shell, file)? {
                let target = guest_path(&library)?;
                if !self.entries.contains_key(&target) {
                    let source = library;
                    self.add(
                        &target,
                        Entry::Copy {
                            source,
                            mode: 0o755,
                        },
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Adds an entry and its parent folders.
    fn add(&mut self, path: &Path, entry: Entry) -> Result<()> {
        if !path.is_absolute() {
            bail!("{} is not a path in the guest", path.display());
        }
        for folder in path.ancestors().skip(1) {
            if folder.parent().is_some() && !self.entries.contains_key(folder) {
                self.entries.insert(folder.to_path_buf(), Entry::Folder);
            }
        }
        self.entries.insert(path.to_path_buf(), entry);
        Ok(())
    }

    /// Returns the number of bytes in the files.
    pub(crate) fn size(&self) -> Result<u64> {
        let mut size = 0;
        for entry in self.entries.values() {
            size += match entry {
                Entry::Copy { source, .. } => fs::metadata(source)?.len(),
                Entry::Text { text, .. } => text.len() as u64,
                _ => 0,
            };
        }
        Ok(size)
    }

    /// Writes the archive.
    pub(crate) fn write(&self, output: impl Write) -> Result<()> {
        let mut output = BufWriter::new(output);
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            output = write_entry(output, number, path, entry)
                .with_context(|| format!("{} of the guest", path.display()))?;
        }
        newc::trailer(output)?.flush()?;
        Ok(())
    }
}

fn write_entry<W: Write>(output: W, number: u32, path: &Path, entry: &Entry) -> Result<W> {
    let name = path.strip_prefix("/")?.to_str().context("not UTF-8")?;
    let builder = newc::Builder::new(name).ino(number);
    let (builder, text) = match entry {
        Entry::Folder => (
            builder
                .mode(0o755)
                .nlink(2)
                .set_mode_file_type(newc::ModeFileType::Directory),
            &[][..],
        ),
        Entry::Link(target) => (
            builder
                .mode(0o777)
                .set_mode_file_type(newc::ModeFileType::Symlink),
            target.as_os_str().as_encoded_bytes(),
        ),
        Entry::Device { major, minor } => (
            builder
                .mode(0o600)
                .rdev_major(*major)
                .rdev_minor(*minor)
                .set_mode_file_type(newc::ModeFileType::Char),
            &[][..],
        ),
        Entry::Text { text, mode } => (
            builder
                .mode(*mode)
                .set_mode_file_type(newc::ModeFileType::Regular),
            text.as_slice(),
        ),
        Entry::Copy { source, mode } => {
            let mut file = File::open(source).with_context(|| source.display().to_string())?;
            let size =
                u32::try_from(file.metadata()?.len()).context("larger than an archive can hold")?;
            let builder = builder
                .mode(*mode)
                .set_mode_file_type(newc::ModeFileType::Regular);
            let mut writer = builder.write(output, size);
            io::copy(&mut file, &mut writer)?;
            return Ok(writer.finish()?);
        }
    };
    let size = u32::try_from(text.len()).context("larger than an archive can hold")?;
    let mut writer = builder.write(output, size);
    writer.write_all(text)?;
    Ok(writer.finish()?)
}

/// Returns the path of a file with the links of its folder resolved.
///
/// The guest's folders are laid out as on this machine.
fn guest_path(file: &Path) -> Result<PathBuf> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        bail!("{} is not a file", file.display());
    };
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
    Ok(folder.join(name))
}

fn is_elf(file: &Path) -> Result<bool> {
    let mut start = Vec::new();
    File::open(file)
        .and_then(|file| file.take(4).read_to_end(&mut start))
        .with_context(|| format!("cannot read {}", file.display()))?;
    Ok(start == object::elf::ELFMAG)
}

/// Returns the shared libraries of a program or library, as this machine's loader finds them.
fn libraries(shell: &Shell, file: &Path) -> Result<Vec<PathBuf>> {
    // ldd fails for a statically linked program.
    let output = cmd!(shell, "ldd {file}").quiet().ignore_status().output()?;
    let listed = parse_libraries(&String::from_utf8_lossy(&output.stdout));
    listed.with_context(|| format!("shared libraries of {}", file.display()))
}

fn parse_libraries(listed: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in listed.lines() {
        let line = line.split(" (0x").next().unwrap_or_default().trim();
        if let Some(name) = line.strip_suffix("=> not found") {
            bail!("the host does not have {}", name.trim());
        }
        let path = line.split("=> ").last().unwrap_or_default();
        if path.starts_with('/') {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    struct Read {
        name: String,
        mode: u32,
        content: Vec<u8>,
    }

    fn read(image: &Image) -> Vec<Read> {
        let mut archive = Vec::new();
        image.write(&mut archive).expect("archive");
        let mut input = Cursor::new(archive);
        let mut found = Vec::new();
        loop {
            let mut reader = newc::Reader::new(input).expect("entry");
            if reader.entry().is_trailer() {
                return found;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut content = Vec::new();
            io::Read::read_to_end(&mut reader, &mut content).expect("content");
            found.push(Read {
                name,
                mode,
                content,
            });
            input = reader.finish().expect("next");
        }
    }

    fn find<'a>(found: &'a [Read], name: &str) -> &'a Read {
        let mut matching = found.iter().filter(|entry| entry.name == name);
        let only = matching
            .next()
            .unwrap_or_else(|| panic!("{name} is missing"));
        assert!(matching.next().is_none(), "{name} occurs twice");
        only
    }

    #[test]
    fn an_archive_has_the_added_files_and_their_folders() {
        let shell = Shell::new().expect("shell");
        let mut image = Image::new(&shell).expect("image");
        image
            .text("/a/deep/place/script", "echo", true)
            .expect("text");
        image
            .link(Path::new("/a/deep/link"), "place/script")
            .expect("link");
        let found = read(&image);
        let script = find(&found, "a/deep/place/script");
        assert_eq!(
            (script.mode, script.content.as_slice()),
            (0o100_755, &b"echo"[..])
        );
        assert_eq!(find(&found, "a/deep/link").content, b"place/script");
        assert_eq!(find(&found, "a/deep").mode, 0o040_755);
        assert_eq!(find(&found, "dev/console").mode, 0o020_600);
        let position = |name| found.iter().position(|entry| entry.name == name);
        assert!(position("a") < position("a/deep"));
        assert!(position("a/deep") < position("a/deep/place/script"));
        assert_eq!(
            image.size().expect("size"),
            4,
            "links and folders hold nothing"
        );
    }

    #[test]
    fn a_program_brings_its_libraries() {
        let shell = Shell::new().expect("shell");
        let mut image = Image::new(&shell).expect("image");
        let this = std::env::current_exe().expect("path");
        image.program(&this, OsStr::new("tests")).expect("program");
        let found = read(&image);
        assert_eq!(
            find(&found, "usr/local/bin/tests").content.len() as u64,
            fs::metadata(&this).expect("size").len()
        );
        assert!(
            found.iter().any(|entry| entry.name.contains("libc.so")),
            "no libc in the image"
        );
        assert!(image.program(&this, OsStr::new("tests")).is_err());
    }

    #[test]
    fn a_link_replaces_nothing() {
        let shell = Shell::new().expect("shell");
        let mut image = Image::new(&shell).expect("image");
        image
            .text("/usr/bin/no-such-tool", "real", true)
            .expect("text");
        image
            .link(Path::new("/usr/bin/no-such-tool"), "busybox")
            .expect("link");
        assert_eq!(find(&read(&image), "usr/bin/no-such-tool").content, b"real");
        for (name, there) in [("no-such-tool", true), ("no-such", false)] {
            assert_eq!(image.has_program(OsStr::new(name)).expect("a place"), there);
        }
    }

    #[test]
    fn a_file_that_cannot_be_added_is_named() {
        let shell = Shell::new().expect("shell");
        let mut image = Image::new(&shell).expect("image");
        let error = image
            .program(Path::new("/no/such/file"), OsStr::new("it"))
            .expect_err("refused");
        assert!(error.to_string().contains("/no/such/file"));
        assert!(image.installed(Path::new("/usr")).is_err());
        assert!(image.text("relative", "", false).is_err());
    }

    #[test]
    fn libraries_are_read_as_the_loader_prints_them() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            parse_libraries(listed).expect("libraries"),
            ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        assert!(parse_libraries("\tnot a dynamic executable\n").is_ok_and(|list| list.is_empty()));
        assert!(parse_libraries("\tstatically linked\n").is_ok_and(|list| list.is_empty()));
        let error = parse_libraries("\tlibgone.so.1 => not found\n").expect_err("refused");
        assert!(error.to_string().contains("libgone.so.1"));
    }
}
