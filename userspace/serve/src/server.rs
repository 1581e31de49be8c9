//! The thread that answers, and its limits.

use std::{
    convert::Infallible,
    future::{Future, ready},
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use http_body_util::{Channel, Either, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
    http::uri::Authority,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use perturb_emulator::{
    privileges,
    registry::{Process, Record, records},
    runtime,
    status::Report,
};
use rustix::process::setpriority_process;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};

use crate::{
    api::{self, Controls},
    metrics::{Form, exposition},
    problem::{Problem, not_allowed},
    socket::{Access, Socket},
};

/// Connections at a time. Others wait until one of these has ended.
const CONNECTIONS: usize = 64;
/// For how long one may take, to ask and to read.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long one may take to ask: who says nothing must not keep others waiting.
const ASKING: Duration = Duration::from_secs(1);
/// For how long what was read is good, at least: whoever asks more often gets the same, for reading the maps costs the processors time.
const FRESH: Duration = Duration::from_millis(100);
/// How much less than others the thread gets of a processor (`nice`).
const NICE: i32 = 10;

/// The path of metrics.
const METRICS: &str = "/metrics";

pub(crate) type Answer = Response<Either<Full<Bytes>, Channel<Bytes, Infallible>>>;

/// The record of the emulation that this process keeps up.
pub(crate) fn own_record() -> anyhow::Result<Option<Record>> {
    // In another PID namespace a process may have the same number.
    let this = Process::current()?;
    Ok(records()?
        .records
        .into_iter()
        .find(|record| record.process == this))
}

/// What it has done; nothing if it has not begun.
pub(crate) fn own() -> anyhow::Result<Option<Report>> {
    own_record()?.as_ref().map_or(Ok(None), Report::of)
}

/// Where an emulation is going to answer.
#[derive(Debug)]
pub struct Listeners {
    metrics: Option<TcpListener>,
    access: Access,
}

impl Listeners {
    /// Takes the address for metrics, if there is one (port 0 is any that is free), and lets a group use the socket, if one is named.
    ///
    /// # Errors
    /// If another program has the address, it is none of this machine's, or there is no such group.
    pub fn open(metrics: Option<SocketAddr>, group: Option<&str>) -> anyhow::Result<Self> {
        let bind = |address| {
            let socket = TcpListener::bind(address).with_context(|| {
                format!("cannot listen on {address} for --metrics; give an address of this machine and a port that is free")
            })?;
            socket.set_nonblocking(true)?;
            anyhow::Ok(socket)
        };
        Ok(Self {
            metrics: metrics.map(bind).transpose()?,
            access: Access::of(group)?,
        })
    }

    /// Answers from now on, on a thread of its own: at the address with metrics, and at the socket of the emulation that has
    /// begun.
    ///
    /// # Errors
    /// If there can be no socket or no thread.
    pub fn serve(self, record: &Record, controls: Controls) -> anyhow::Result<Server> {
        let socket = Socket::of(record, &self.access)?;
        if let Some(listener) = &self.metrics {
            log::info!("metrics at http://{}{METRICS}", listener.local_addr()?);
        }
        let (end, ended) = oneshot::channel();
        let answer = move || {
            // The threads of a controller have what it needs, and no more. Whoever has less cannot give up more.
            let _ = privileges::keep_needed();
            // Others come first. If it cannot be, they share.
            let _ = setpriority_process(None, NICE);
            let runtime = runtime()?;
            let done = runtime.block_on(async {
                let shelf = Arc::new(Mutex::new(None));
                tokio::select! {
                    done = listen(self.metrics, Arc::clone(&shelf)) => done,
                    done = attend(&socket, shelf, Arc::new(controls)) => done,
                    _ = ended => Ok(()),
                }
            });
            // What still waits for the session may wait for it to end.
            runtime.shutdown_background();
            done
        };
        let thread = thread::Builder::new()
            .name("perturb-serve".into())
            .spawn(move || {
                if let Err(error) = answer() {
                    log::error!("no metrics and no API from now on: {error:#}");
                }
            })
            .context("starting the thread that answers HTTP")?;
        Ok(Server {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

/// The thread. Dropping it ends it, whoever still reads.
#[derive(Debug)]
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that answers HTTP has panicked");
        }
    }
}

/// What was read last.
type Shelf = Arc<Mutex<Option<Read>>>;

struct Read {
    until: Instant,
    /// Nothing if nothing was emulated; or why it could not be read.
    report: Result<Option<Report>, String>,
    /// The report in each form that was asked for.
    texts: [Option<Bytes>; 2],
}

/// The metrics; nothing if nothing is emulated.
fn metrics(shelf: &Shelf, form: Form) -> anyhow::Result<Option<Bytes>> {
    let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
    let read = match &mut *shelf {
        Some(read) if Instant::now() < read.until => read,
        stale => {
            let began = Instant::now();
            let report = own().map_err(|error| format!("{error:#}"));
            // Many servers take long to read: at most a tenth of the time goes into it.
            let fresh = FRESH.max(10 * began.elapsed());
            stale.insert(Read {
                until: Instant::now() + fresh,
                report,
                texts: [None, None],
            })
        }
    };
    let Some(report) = read.report.as_ref().map_err(|error| anyhow!("{error}"))? else {
        return Ok(None);
    };
    let text = &mut read.texts[form as usize];
    if text.is_none() {
        *text = Some(exposition(report, form)?.into());
    }
    Ok(text.clone())
}

/// Answers at the address; nothing and never, if there is none.
async fn listen(listener: Option<TcpListener>, shelf: Shelf) -> anyhow::Result<()> {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let socket = tokio::net::TcpListener::from_std(listener).context("waiting for connections")?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&room).acquire_owned().await?;
        let Some(stream) = next(socket.accept().await).await else {
            continue;
        };
        let shelf = Arc::clone(&shelf);
        let local = stream.local_addr().map(|address| address.ip());
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let host = request.headers().get(header::HOST);
                ready(if local.as_ref().is_ok_and(|local| !is_meant_for(*local, host)) {
                    let what = "over a loopback address metrics are for `Host: localhost` or an address, not for another name";
                    Problem::new(StatusCode::MISDIRECTED_REQUEST, what).answer()
                } else {
                    answer(&request, &shelf)
                })
            };
            // Whoever asks wrongly, or reads too slowly, has had an answer or none.
            let _ = timeout(PATIENCE, converse(stream, answer)).await;
            drop(place);
        });
    }
}

/// Whether a request is meant for the address that it came to. A page in a browser on this machine can have its own name lead to a
/// loopback address and read what it finds there (DNS rebinding): it says that name.
fn is_meant_for(local: IpAddr, host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.filter(|_| local.is_loopback()) else {
        return true;
    };
    let Ok(host) = host.as_bytes().try_into() as Result<Authority, _> else {
        return false;
    };
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Answers at the socket. Who listens to events may do so for as long as they like.
async fn attend(socket: &Socket, shelf: Shelf, controls: Arc<Controls>) -> anyhow::Result<()> {
    let listener = socket
        .listener
        .try_clone()
        .and_then(tokio::net::UnixListener::from_std);
    let listener = listener.context("waiting for connections at the socket")?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&room).acquire_owned().await?;
        let Some(stream) = next(listener.accept().await).await else {
            continue;
        };
        let (shelf, controls) = (Arc::clone(&shelf), Arc::clone(&controls));
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| async {
                if request.uri().path() == METRICS {
                    answer(&request, &shelf)
                } else {
                    api::answer(request, Arc::clone(&controls)).await
                }
            };
            // Whoever asks wrongly has had an answer or none.
            let _ = converse(stream, answer).await;
            drop(place);
        });
    }
}

/// The connection, unless it was given up, or there are no descriptors left for a moment.
async fn next<S, A>(accepted: io::Result<(S, A)>) -> Option<S> {
    if accepted.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    accepted.ok().map(|(stream, _)| stream)
}

/// One question and its answer: whoever wants more connects again.
async fn converse<F: Future<Output = Answer>>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(Request<Incoming>) -> F,
) -> hyper::Result<()> {
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(ASKING)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Answers what is asked of metrics.
fn answer(request: &Request<Incoming>, shelf: &Shelf) -> Answer {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return not_allowed("GET, HEAD");
    }
    if request.uri().path() != METRICS {
        return Problem::new(StatusCode::NOT_FOUND, "there is /metrics, and nothing else").answer();
    }
    let form = Form::accepted(request.headers().get(header::ACCEPT));
    match metrics(shelf, form) {
        Ok(Some(metrics)) => text(form.content_type(), metrics),
        Ok(None) => Problem::gone().answer(),
        Err(error) => Problem::internal(&error).answer(),
    }
}

/// An answer with a body.
pub(crate) fn text(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hyper::header::HeaderValue;

    use super::is_meant_for;

    #[test]
    fn another_name_for_a_loopback_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        for (local, host, meant) in [
            ("127.0.0.1", Some("127.0.0.1:9464"), true),
            ("127.0.0.1", Some("localhost:9464"), true),
            ("::1", Some("[::1]:9464"), true),
            ("::1", Some("LOCALHOST"), true),
            ("127.0.0.1", None, true),
            ("127.0.0.1", Some("evil.example:9464"), false),
            ("::1", Some("localhost.evil.example"), false),
            ("127.0.0.1", Some("a b"), false),
            ("127.0.0.1", Some(""), false),
            ("192.0.2.1", Some("node7.example:9464"), true),
        ] {
            let local: IpAddr = local.parse()?;
            let value = host.map(HeaderValue::from_str).transpose()?;
            assert_eq!(is_meant_for(local, value.as_ref()), meant, "{local} {host:?}");
        }
        Ok(())
    }
}
