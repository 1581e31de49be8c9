use std::{net::Ipv4Addr, sync::Barrier, thread};

use super::*;

#[test]
fn partners_are_those_of_fig_13() {
    assert_eq!(partners(0, 4), [1, 2, 3]);
    assert_eq!(partners(3, 4), [2, 1, 0]);
    assert_eq!(partners(5, 6), [4, 1, 0, 3, 2]);
    // In each step who sends to whom is a permutation of its own inverse.
    for step in 0..7 {
        for rank in 0..8 {
            let partner = partners(rank, 8)[step];
            assert_eq!(partners(partner, 8)[step], rank);
        }
    }
}

/// Loopback addresses stand for hosts.
#[test]
fn every_algorithm_ends_on_loopback() {
    const RANKS: usize = 4;
    let addresses: Vec<IpAddr> = (0..RANKS)
        .map(|rank| Ipv4Addr::new(127, 77, 0, rank as u8 + 1).into())
        .collect();
    let barrier = Barrier::new(RANKS);
    let start = Instant::now() + Duration::from_millis(50);
    thread::scope(|scope| {
        for rank in 0..RANKS {
            let (addresses, barrier) = (&addresses, &barrier);
            scope.spawn(move || {
                let listener = TcpListener::bind((addresses[rank], PORT)).unwrap();
                barrier.wait();
                let mut peers: Vec<Option<Peer>> = (0..RANKS).map(|_| None).collect();
                // On loopback a connection comes from 127.0.0.1 unless it is bound, so each says who it is.
                for (peer, &address) in addresses.iter().enumerate().take(rank) {
                    let mut stream = TcpStream::connect((address, PORT)).unwrap();
                    io::Write::write_all(&mut stream, &[rank as u8]).unwrap();
                    peers[peer] = Some(Peer::new(stream).unwrap());
                }
                for _ in rank + 1..RANKS {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut name = [0];
                    io::Read::read_exact(&mut stream, &mut name).unwrap();
                    peers[usize::from(name[0])] = Some(Peer::new(stream).unwrap());
                }
                let mut this = Rank {
                    rank,
                    peers,
                    buffer: vec![0; 4096],
                };
                barrier.wait();
                if rank == 0 {
                    assert_eq!(this.ping(3, 5).unwrap().len(), 5);
                } else if rank == 3 {
                    this.pong(0, 5).unwrap();
                }
                for algorithm in [Algorithm::AlltoallA, Algorithm::AlltoallB, Algorithm::Incast] {
                    for message in [1, 100_000, 3_000_000] {
                        barrier.wait();
                        let ended = this
                            .round(
                                &algorithm.steps(rank, RANKS, message),
                                start,
                                Duration::from_secs(60),
                            )
                            .unwrap();
                        assert!(ended >= start);
                        barrier.wait();
                        this.settle(Duration::from_secs(60)).unwrap();
                        let left: u64 = this.peers.iter().flatten().map(|peer| peer.received).sum();
                        assert_eq!(left, 0, "{algorithm:?} of {message} bytes leaves nothing");
                    }
                }
                barrier.wait();
            });
        }
    });
}

#[test]
fn a_message_that_does_not_come_is_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut rank = Rank {
        rank: 0,
        peers: vec![None, Some(Peer::new(stream).unwrap())],
        buffer: vec![0; 16],
    };
    let error = rank
        .round(
            &Algorithm::Incast.steps(0, 2, 10),
            Instant::now(),
            Duration::from_millis(50),
        )
        .unwrap_err();
    assert!(
        matches!(
            error,
            CollectiveError::Late {
                peer: 1,
                received: 0,
                expected: 10,
                ..
            }
        ),
        "{error}"
    );
    drop(listener);
    let error = rank
        .round(
            &Algorithm::Incast.steps(0, 2, 10),
            Instant::now(),
            Duration::from_secs(5),
        )
        .unwrap_err();
    assert!(
        matches!(error, CollectiveError::Connection { peer: 1, .. }),
        "{error}"
    );
}
