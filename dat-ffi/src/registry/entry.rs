//! An entry of `dat.conf`.

use std::ffi::{CStr, CString};

use super::problem::Reason;
use super::wanted::Candidate;

/// The users of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Programs: `u` before the version.
    User,
    /// The kernel: `k` before the version. No registry of this project uses it.
    Kernel,
}

/// A line of `dat.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line of the file, from 1.
    pub line: usize,
    /// The name that consumers pass to `dat_ia_open`, at most 255 bytes.
    pub name: CString,
    /// The users of the provider.
    pub level: Level,
    /// The major version of the interface.
    pub major: u32,
    /// The minor version of the interface.
    pub minor: u32,
    /// True if the provider declares itself thread-safe.
    pub is_thread_safe: bool,
    /// True for the default section; entries of other sections are ignored.
    pub is_default: bool,
    /// Path or name of the library for the loader.
    pub library: CString,
    /// The vendor and the version of the provider, such as `dapl.2.0`.
    pub provider_version: CString,
    /// The text that the provider gets.
    pub instance_data: CString,
    /// Unused.
    pub platform_data: CString,
}

/// Bytes of a name with its zero byte.
const NAME_BYTES: usize = 256;

impl Entry {
    /// Returns true if a registry for programs uses the entry.
    pub fn is_usable(&self) -> bool {
        self.level == Level::User && self.is_default
    }

    /// Returns the properties that consumers choose by.
    pub fn candidate(&self) -> Candidate<'_> {
        Candidate {
            name: &self.name,
            major: self.major,
            minor: self.minor,
            is_thread_safe: self.is_thread_safe,
        }
    }

    /// Makes an entry of the fields of a line.
    pub(super) fn new(line: usize, fields: Vec<Vec<u8>>) -> Result<Self, Reason> {
        let count = fields.len();
        let texts: Vec<CString> = fields
            .into_iter()
            .map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(|_| Reason::ZeroByte)?;
        let [
            name,
            version,
            threads,
            section,
            library,
            provider_version,
            instance_data,
            platform_data,
        ] = <[CString; 8]>::try_from(texts).map_err(|_| Reason::Fields(count))?;
        if name.is_empty() || name.as_bytes_with_nul().len() > NAME_BYTES {
            return Err(Reason::Name(name.as_bytes().len()));
        }
        let owned = |text: &CStr| text.to_string_lossy().into_owned();
        let (level, major, minor) =
            interface_version(&version).ok_or_else(|| Reason::InterfaceVersion(owned(&version)))?;
        let is_thread_safe = match threads.as_bytes() {
            b"threadsafe" => true,
            b"nonthreadsafe" => false,
            _ => return Err(Reason::Threads(owned(&threads))),
        };
        let is_default = match section.as_bytes() {
            b"default" => true,
            b"nondefault" => false,
            _ => return Err(Reason::Section(owned(&section))),
        };
        if library.is_empty() {
            return Err(Reason::NoLibrary);
        }
        if !is_provider_version(provider_version.as_bytes()) {
            return Err(Reason::ProviderVersion(owned(&provider_version)));
        }
        Ok(Self {
            line,
            name,
            level,
            major,
            minor,
            is_thread_safe,
            is_default,
            library,
            provider_version,
            instance_data,
            platform_data,
        })
    }
}

/// Parses `u1.2` or `k2.0`.
fn interface_version(text: &CStr) -> Option<(Level, u32, u32)> {
    let (level, numbers) = text.to_str().ok()?.split_at_checked(1)?;
    let level = match level {
        "u" => Level::User,
        "k" => Level::Kernel,
        _ => return None,
    };
    let (major, minor) = numbers.split_once('.')?;
    Some((level, number(major)?, number(minor)?))
}

/// Parses digits only; `parse` would also accept a sign.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Returns true for an identifier and two numbers, such as `dapl.2.0`.
fn is_provider_version(text: &[u8]) -> bool {
    let mut parts = text.rsplitn(3, |byte| *byte == b'.');
    let mut is_number = || {
        let part = parts.next().and_then(|part| std::str::from_utf8(part).ok());
        part.and_then(number).is_some()
    };
    let numbers = is_number() && is_number();
    numbers && parts.next().is_some_and(|vendor| !vendor.is_empty())
}
