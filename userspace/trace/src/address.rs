//! Where traces go to and come from: Unix sockets and TCP.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How long a reader that does not read is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where readers connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `unix:PATH`, or a path.
    Unix(PathBuf),
    /// `tcp:HOST:PORT`.
    Tcp(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(out),
            Self::Tcp(address) => write!(out, "tcp:{address}"),
        }
    }
}

/// Not an address.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{text}` is no address; give a Unix socket's path, as in `/tmp/events.sock` or `unix:events.sock`, or `tcp:HOST:PORT`"
)]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError {
            text: text.to_owned(),
        };
        if let Some(address) = text.strip_prefix("tcp:") {
            let (host, port) = address.rsplit_once(':').ok_or_else(error)?;
            let is_valid = !host.is_empty() && port.parse::<u16>().is_ok();
            return is_valid.then(|| Self::Tcp(address.to_owned())).ok_or_else(error);
        }
        let path = text.strip_prefix("unix:").unwrap_or(text);
        if path.is_empty() {
            return Err(error());
        }
        Ok(Self::Unix(path.into()))
    }
}

/// A connection.
pub(crate) trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

fn tcp(stream: TcpStream) -> io::Result<Box<dyn Stream>> {
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

impl Address {
    /// Connects to a listener there.
    pub(crate) fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path)?)),
            Self::Tcp(address) => tcp(TcpStream::connect(address.as_str())?),
        }
    }
}

/// Listens at an address.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Also where a socket was left behind; a file is not removed.
    pub(crate) fn bind(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Unix(path) => {
                if path.metadata().is_ok_and(|found| found.file_type().is_socket())
                    && UnixStream::connect(path).is_err()
                {
                    std::fs::remove_file(path)?;
                }
                Self::Unix(UnixListener::bind(path)?)
            }
            Address::Tcp(address) => Self::Tcp(TcpListener::bind(address.as_str())?),
        })
    }

    /// The next connection.
    pub(crate) fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Self::Tcp(listener) => tcp(listener.accept()?.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |text: &str| text.parse::<Address>().ok();
        assert_eq!(
            parse("tcp:0.0.0.0:7000"),
            Some(Address::Tcp("0.0.0.0:7000".to_owned()))
        );
        assert_eq!(
            parse("tcp:[::1]:7000"),
            Some(Address::Tcp("[::1]:7000".to_owned()))
        );
        assert_eq!(parse("unix:/tmp/s"), Some(Address::Unix("/tmp/s".into())));
        assert_eq!(parse("s.sock"), Some(Address::Unix("s.sock".into())));
        for wrong in [
            "",
            "unix:",
            "tcp:",
            "tcp:7000",
            "tcp::7000",
            "tcp:host:",
            "tcp:host:70000",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
