//! Addresses of servers as users write them.

use std::net::SocketAddr;

/// Parses an address: `IP`, or `IP%INTERFACE` for a link-local one; the port is 0.
pub(crate) fn parse_ip(text: &str) -> Result<SocketAddr, String> {
    dat_devices::parse_ip(text).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            format!("{error}; write for example 10.9.0.1, fd09::1 or fe80::1%eth0")
        }
        _ => error.to_string(),
    })
}

/// Parses the name of a device.
pub(crate) fn parse_device(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the name of a device is missing; `dat devices` lists the names".into()),
        "mock" => Err(
            "the mock is no device; without --device, `dat tour`, `dat copy`, `dat perf` \
            and `dat rsm` run on it"
                .into(),
        ),
        name if name.starts_with("roce?") => Err(format!(
            "options follow an address; write for example roce://127.0.0.1{}, or `--device roce` \
            with --path",
            name.trim_start_matches("roce")
        )),
        name => Ok(name.into()),
    }
}

/// The default port of a server.
pub(crate) const QUALIFIER: u16 = 7471;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// A host name or an IP address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Parses `HOST`, `HOST:PORT`, `ADDRESS`, or `[ADDRESS]:PORT` for addresses with colons.
pub(crate) fn parse_peer(text: &str) -> Result<Peer, String> {
    let host_only = |host: &str| Ok((host.to_owned(), None));
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        match rest.split_once(']') {
            Some((host, "")) => Ok((host.to_owned(), None)),
            Some((host, port)) => match port.strip_prefix(':') {
                Some(port) => Ok((host.to_owned(), Some(port))),
                None => Err("only a colon and a port may follow the ]".to_owned()),
            },
            None => Err("the [ has no matching ]".to_owned()),
        }
    } else {
        match text.split_once(':') {
            None => host_only(text),
            // An IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => host_only(text),
            Some((host, port)) => Ok((host.to_owned(), Some(port))),
        }
    }?;
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(
            "the host is missing; write for example server1, 10.9.0.1:7471 or [fd09::1]:7471"
                .into(),
        );
    }
    let port = match port {
        None => QUALIFIER,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or("the port must be a number from 1 to 65535")?,
    };
    Ok(Peer { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_parsed() {
        for (text, host, port) in [
            ("server1", "server1", QUALIFIER),
            ("server1:80", "server1", 80),
            ("10.9.0.1:65535", "10.9.0.1", 65535),
            ("fd09::1", "fd09::1", QUALIFIER),
            ("[fd09::1]", "fd09::1", QUALIFIER),
            ("[fe80::1%eth0]:9", "fe80::1%eth0", 9),
        ] {
            let host = host.to_owned();
            assert_eq!(parse_peer(text), Ok(Peer { host, port }), "{text}");
        }
        for text in [
            "", ":1", "a:", "a:0", "a:65536", "a:x", "a b", "[::1", "[::1]x", "[]:1", "a:-1",
        ] {
            assert!(parse_peer(text).is_err(), "{text}");
        }
    }
}
