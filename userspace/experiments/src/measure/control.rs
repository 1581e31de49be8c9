//! The word between measuring hosts: one JSON object per line over TCP.
//!
//! A host that serves sends trains and tells what it received, on request. Both directions, and trains between third
//! hosts, are measured by the same three requests, so the asking host needs nothing that the serving one lacks.

use std::{
    convert::Infallible,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::Arc,
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::probe::endpoint::{Endpoint, Receipt, Sent, Train};

/// Version of this protocol.
const VERSION: u32 = 2;
/// Longest wait for an answer beyond what was asked for.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most datagrams of a train that a stranger may ask for.
const MAX_DATAGRAMS: usize = 200_000;

/// What is asked of a serving host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// Where its measuring socket is.
    Hello,
    /// Send a train.
    Send {
        to: SocketAddr,
        number: u32,
        train: Train,
    },
    /// Tell what came of one.
    Take {
        number: u32,
        expected: usize,
        patience_ms: u64,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Hello { version: u32, port: u16 },
    Sent(Vec<Sent>),
    Receipts(Vec<Receipt>),
    Refused(String),
}

/// Why a peer could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// The connection.
    #[error(
        "{peer}: {source}; is `perturb measure serve` running there, and does a firewall let it through?"
    )]
    Connection { peer: String, source: io::Error },
    /// Another protocol.
    #[error(
        "{peer} has version {found} of the measuring protocol, this perturb has {VERSION}; use the same perturb"
    )]
    Version { peer: String, found: u32 },
    /// It did not do it.
    #[error("{peer} refuses: {reason}")]
    Refused { peer: String, reason: String },
    /// Something that is no answer to what was asked.
    #[error("{peer} answers something else than was asked; use the same perturb on both sides")]
    Confused { peer: String },
    /// No packet from one to the other.
    #[error("no packet of {sender} came to {receiver}; does a firewall let UDP through between them?")]
    Silent { sender: String, receiver: String },
}

/// The sockets of a serving host: TCP and UDP of the same number.
pub struct Server {
    listener: TcpListener,
    endpoint: Arc<Endpoint>,
}

impl Server {
    /// Listens.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let socket = UdpSocket::bind(listener.local_addr()?)?;
        let endpoint = Arc::new(Endpoint::start(socket)?);
        Ok(Self { listener, endpoint })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends.
    pub fn serve(&self) -> io::Result<Infallible> {
        loop {
            let (stream, _) = self.listener.accept()?;
            let endpoint = Arc::clone(&self.endpoint);
            thread::Builder::new().name("measure".into()).spawn(move || {
                // An asker that goes away ends its connection, nothing else.
                let _ = converse(stream, &endpoint);
            })?;
        }
    }
}

fn converse(stream: TcpStream, endpoint: &Endpoint) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(request) => {
                answer(&request, endpoint).unwrap_or_else(|error| Answer::Refused(error.to_string()))
            }
            Err(error) => Answer::Refused(error.to_string()),
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        writer.write_all(&text)?;
    }
    Ok(())
}

fn answer(request: &Request, endpoint: &Endpoint) -> io::Result<Answer> {
    Ok(match *request {
        Request::Hello => Answer::Hello {
            version: VERSION,
            port: endpoint.address()?.port(),
        },
        Request::Send { train, .. }
            if train.datagrams() > MAX_DATAGRAMS
                || train.duration() > PATIENCE
                || train.burst == 0
                || train.segments == 0
                || train.segments as usize * train.payload > 65_000 =>
        {
            Answer::Refused(format!(
                "a train of {} datagrams is more than this side sends; use the same perturb on both sides",
                train.datagrams()
            ))
        }
        Request::Send { to, number, train } => Answer::Sent(endpoint.send(to, number, &train)?),
        Request::Take {
            number,
            expected,
            patience_ms,
        } => {
            let patience = Duration::from_millis(patience_ms).min(PATIENCE);
            Answer::Receipts(endpoint.take(number, expected, patience))
        }
    })
}

/// A host that serves.
pub(super) struct Peer {
    /// As the asking host calls it.
    pub name: String,
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    /// Its measuring socket.
    pub address: SocketAddr,
    /// The asking host's address on the way there.
    pub own: IpAddr,
}

impl Peer {
    /// Connects.
    pub(super) fn connect(name: &str, address: SocketAddr) -> Result<Self, PeerError> {
        let broken = |source| PeerError::Connection {
            peer: name.into(),
            source,
        };
        let open = || -> io::Result<(TcpStream, TcpStream, IpAddr)> {
            let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(2 * PATIENCE))?;
            let own = stream.local_addr()?.ip();
            Ok((stream.try_clone()?, stream, own))
        };
        let (reader, writer, own) = open().map_err(broken)?;
        let mut peer = Self {
            name: name.into(),
            reader: BufReader::new(reader),
            writer,
            address,
            own,
        };
        match peer.ask(&Request::Hello)? {
            Answer::Hello {
                version: VERSION,
                port,
            } => peer.address.set_port(port),
            Answer::Hello { version: found, .. } => {
                return Err(PeerError::Version {
                    peer: peer.name,
                    found,
                });
            }
            _ => return Err(peer.confused()),
        }
        Ok(peer)
    }

    /// Has it send a train.
    pub(super) fn send(&mut self, to: SocketAddr, number: u32, train: Train) -> Result<Vec<Sent>, PeerError> {
        match self.ask(&Request::Send { to, number, train })? {
            Answer::Sent(sent) => Ok(sent),
            _ => Err(self.confused()),
        }
    }

    /// What it received of one.
    pub(super) fn take(
        &mut self,
        number: u32,
        expected: usize,
        patience: Duration,
    ) -> Result<Vec<Receipt>, PeerError> {
        let request = Request::Take {
            number,
            expected,
            patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        };
        match self.ask(&request)? {
            Answer::Receipts(receipts) => Ok(receipts),
            _ => Err(self.confused()),
        }
    }

    fn confused(&self) -> PeerError {
        PeerError::Confused {
            peer: self.name.clone(),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, PeerError> {
        let broken = |source| PeerError::Connection {
            peer: self.name.clone(),
            source,
        };
        let mut exchange = || -> io::Result<Answer> {
            let mut text = serde_json::to_vec(request)?;
            text.push(b'\n');
            self.writer.write_all(&text)?;
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Ok(serde_json::from_str(&line)?)
        };
        match exchange().map_err(broken)? {
            Answer::Refused(reason) => Err(PeerError::Refused {
                peer: self.name.clone(),
                reason,
            }),
            answer => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_sends_and_tells() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = server.address().unwrap();
        thread::spawn(move || server.serve());
        let mut peer = Peer::connect("there", address).unwrap();
        let here = Endpoint::start(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let train = Train {
            messages: 4,
            segments: 1,
            payload: 64,
            burst: 4,
            interval_ns: 0,
        };
        let number = here.number();
        here.send(peer.address, number, &train).unwrap();
        assert_eq!(peer.take(number, 4, Duration::from_secs(5)).unwrap().len(), 4);
        assert_eq!(peer.send(here.address().unwrap(), 7, train).unwrap().len(), 4);
        assert_eq!(here.take(7, 4, Duration::from_secs(5)).len(), 4);
        let flood = Train {
            messages: 1_000_000,
            ..train
        };
        let refused = peer.send(here.address().unwrap(), 8, flood);
        assert!(matches!(refused, Err(PeerError::Refused { .. })));
    }

    #[test]
    fn nobody_serves() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Peer::connect("there", free).err().unwrap().to_string();
        assert!(error.contains("measure serve"), "{error}");
    }
}
