//! Datagrams there and back.

use super::*;

/// How the two ends of an exchange wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Asleep: the processors are free for others, and a wake-up is part of each way.
    Asleep,
    /// Asking again and again: nothing but the network is measured, while there is a processor for each end.
    Polling,
}

/// Round-trip times in microseconds of `count` datagrams of `size` bytes, each sent when the echo of the one before
/// has arrived.
pub fn ping_pong(from: &Host, to: &Host, count: usize, size: usize, waiting: Waiting) -> Result<Sample> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let echo = bind(to, to.v4.into(), 0)?;
    let client = bind(from, from.v4.into(), 0)?;
    client.connect(echo.local_addr()?)?;
    echo.connect(client.local_addr()?)?;
    for socket in [&client, &echo] {
        match waiting {
            Waiting::Asleep => socket.set_read_timeout(Some(PATIENCE))?,
            Waiting::Polling => socket.set_nonblocking(true)?,
        }
    }
    let receive = |socket: &UdpSocket, buffer: &mut [u8]| -> io::Result<usize> {
        let start = clock::now();
        loop {
            match socket.recv(buffer) {
                Err(error)
                    if waiting == Waiting::Polling
                        && error.kind() == io::ErrorKind::WouldBlock
                        && clock::now() - start < PATIENCE.as_nanos() as u64 =>
                {
                    thread::yield_now();
                }
                done => return done,
            }
        }
    };
    thread::scope(|scope| {
        let mirror = scope.spawn(|| -> io::Result<()> {
            let mut buffer = vec![0; size];
            for _ in 0..count {
                let length = receive(&echo, &mut buffer)?;
                echo.send(&buffer[..length])?;
            }
            Ok(())
        });
        let mut times = Vec::with_capacity(count);
        let mut buffer = vec![0; size];
        for _ in 0..count {
            let start = clock::now();
            client.send(&buffer)?;
            receive(&client, &mut buffer).context("no echo within 2 s")?;
            times.push((clock::now() - start) as f64 / 1e3);
        }
        mirror
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Sample::new(times).context("too few echoes")
    })
}
