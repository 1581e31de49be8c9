//! Datagrams: one task reads replies; each call sends itself again until it is answered.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, sync::atomic::Ordering, time::Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;

use super::{
    Arrival, Awaited, CallError, Client, Loss, Options, Shared, Tasks, Wire,
    tcp::{any_address, reserved_ports},
};

/// Largest payload of a UDP datagram over IPv4.
const DATAGRAM_LIMIT: usize = 65_507;

pub(super) async fn connect(peer: SocketAddr, options: &Options) -> io::Result<Client> {
    let socket = if options.reserved_ports {
        on_reserved_port(peer).await?
    } else {
        UdpSocket::bind(any_address(peer, 0)).await?
    };
    socket.connect(peer).await?;
    let shared = Arc::new(Shared::new(peer, options, Wire::Udp(socket)));
    let reader = tokio::spawn(read(Arc::clone(&shared))).abort_handle();
    Ok(Client {
        shared,
        _tasks: Arc::new(Tasks(vec![reader])),
    })
}

async fn on_reserved_port(peer: SocketAddr) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in reserved_ports() {
        match UdpSocket::bind(any_address(peer, port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            other => return other,
        }
    }
    Err(last)
}

/// Sends until answered or out of time.
pub(super) async fn exchange(
    shared: &Shared,
    socket: &UdpSocket,
    message: &[u8],
    awaited: Awaited<'_>,
) -> Result<Arrival, CallError> {
    if message.len() > DATAGRAM_LIMIT {
        return Err(CallError::TooLong(message.len()));
    }
    let start = tokio::time::Instant::now();
    let give_up = start + shared.options.timeout;
    let mut awaited = pin!(awaited);
    let mut wait = shared.options.retransmit_after;
    for sent in 1.. {
        match socket.send(message).await {
            // A full buffer or a refusal of an earlier datagram: as good as lost on the way.
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                return Err(CallError::Lost {
                    peer: shared.peer,
                    cause: Loss::Io(Arc::new(error)),
                });
            }
        }
        let until = (tokio::time::Instant::now() + wait).min(give_up);
        if let Ok(arrival) = tokio::time::timeout_at(until, awaited.as_mut()).await {
            return arrival;
        }
        if until == give_up {
            let after = shared.options.timeout;
            return Err(CallError::TimedOut {
                peer: shared.peer,
                after,
                sent,
            });
        }
        shared.retransmissions.fetch_add(1, Ordering::Relaxed);
        wait *= 2;
    }
    unreachable!("the loop ends by the time-out")
}

async fn read(shared: Arc<Shared>) {
    let Wire::Udp(socket) = &shared.wire else { return };
    let mut buffer = vec![0; DATAGRAM_LIMIT];
    loop {
        match socket.recv(&mut buffer).await {
            // What is no reply to us is a stray datagram; the call it may have been is sent again.
            Ok(length) => drop(shared.arrived(Bytes::copy_from_slice(&buffer[..length]), Instant::now())),
            // An earlier datagram found nobody listening. The server may come back.
            Err(error) if is_passing(&error) => {}
            Err(error) => return shared.lose(Loss::Io(Arc::new(error))),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    ) || error.raw_os_error() == Some(libc::ENOBUFS)
}
