//! The stream: one task writes what calls have collected, one reads and hands out replies.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use nfs3_types::xdr_codec;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
};

use super::{Client, Loss, Options, REPLY_LIMIT, Shared, Tasks, Wire};
use crate::nfs::rpc::{self, RecordError, Records};

/// Calls that wait to be written.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Mutex<Vec<u8>>,
    filled: Notify,
}

impl Outgoing {
    /// Appends one record that `message` writes.
    pub(super) fn put(
        &self,
        message: impl FnOnce(&mut Vec<u8>) -> xdr_codec::Result<()>,
    ) -> xdr_codec::Result<()> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = bytes.is_empty();
        let start = rpc::begin_record(&mut bytes);
        if let Err(error) = message(&mut bytes) {
            bytes.truncate(start);
            return Err(error);
        }
        rpc::end_record(&mut bytes, start);
        drop(bytes);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(())
    }

    async fn take(&self, empty: Vec<u8>) -> Vec<u8> {
        loop {
            {
                let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                if !bytes.is_empty() {
                    return std::mem::replace(&mut *bytes, empty);
                }
            }
            self.filled.notified().await;
        }
    }
}

pub(super) async fn connect(peer: SocketAddr, options: &Options) -> io::Result<Client> {
    let stream = if options.reserved_ports {
        from_reserved_port(peer).await?
    } else {
        TcpStream::connect(peer).await?
    };
    stream.set_nodelay(true)?;
    let (incoming, outgoing) = stream.into_split();
    let shared = Arc::new(Shared::new(peer, options, Wire::Tcp(Outgoing::default())));
    let reader = tokio::spawn(read(incoming, Arc::clone(&shared))).abort_handle();
    let writer = tokio::spawn(write(outgoing, Arc::clone(&shared))).abort_handle();
    Ok(Client {
        shared,
        _tasks: Arc::new(Tasks(vec![reader, writer])),
    })
}

async fn from_reserved_port(peer: SocketAddr) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in reserved_ports() {
        let socket = if peer.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        match socket.bind(any_address(peer, port)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
            Err(error) => return Err(error),
        }
        match socket.connect(peer).await {
            // The same pair of ports is still in TIME_WAIT.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => last = error,
            other => return other,
        }
    }
    Err(last)
}

/// The ports that Linux' own client takes (sunrpc.min_resvport to max_resvport), from the top.
pub(super) fn reserved_ports() -> impl Iterator<Item = u16> {
    (665..=1023).rev()
}

pub(super) fn any_address(peer: SocketAddr, port: u16) -> SocketAddr {
    if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, port).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, port).into()
    }
}

async fn read(mut stream: OwnedReadHalf, shared: Arc<Shared>) {
    let mut records = Records::new(REPLY_LIMIT);
    let loss = loop {
        match stream.read_buf(&mut records.stream).await {
            Ok(0) => break Loss::Closed,
            Ok(_) => {}
            Err(error) => break Loss::Io(Arc::new(error)),
        }
        if let Err(error) = hand_out(&mut records, &shared) {
            break error.into();
        }
        // Small reads would follow each other when the buffer is nearly full.
        records.stream.reserve(32 * 1024);
    };
    shared.lose(loss);
}

fn hand_out(records: &mut Records, shared: &Shared) -> Result<(), RecordError> {
    let now = Instant::now();
    while let Some(message) = records.next()? {
        shared.arrived(message, now)?;
    }
    Ok(())
}

async fn write(mut stream: OwnedWriteHalf, shared: Arc<Shared>) {
    let Wire::Tcp(outgoing) = &shared.wire else { return };
    let mut written = Vec::new();
    loop {
        written.clear();
        // A burst of large writes must not keep its memory.
        written.shrink_to(256 * 1024);
        written = outgoing.take(written).await;
        if let Err(error) = stream.write_all(&written).await {
            shared.lose(Loss::Io(Arc::new(error)));
            return;
        }
    }
}
