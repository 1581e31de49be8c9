//! The thread that answers, and its limits.

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    process,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use perturb_emulator::{privileges, registry::records, runtime, status::Report};
use rustix::process::setpriority_process;
use tokio::{
    net::TcpStream,
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};

use crate::{
    metrics::{Form, exposition},
    problem::problem,
};

/// Connections at a time. Others wait until one of these has ended.
const CONNECTIONS: usize = 64;
/// For how long one may take, to ask and to read.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long a report is good: whoever asks more often gets the same one, for reading the maps costs the processors time.
const FRESH: Duration = Duration::from_millis(100);
/// How much less than others the thread gets of a processor (`nice`).
const NICE: i32 = 10;

pub(crate) type Answer = Response<Full<Bytes>>;

/// What the emulation has done; nothing if it has not begun.
type Source = Box<dyn Fn() -> anyhow::Result<Option<Report>> + Send>;

/// The report of the emulation that this process keeps up.
///
/// # Errors
/// If its record or its maps cannot be read.
pub fn own() -> anyhow::Result<Option<Report>> {
    let own = |record: &perturb_emulator::registry::Record| record.process.pid == process::id();
    let record = records()?.records.into_iter().find(own);
    record.as_ref().map_or(Ok(None), Report::of)
}

/// An address that nobody else has from now on.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Takes the address; port 0 is any that is free.
    ///
    /// # Errors
    /// If another program has it, or it is none of this machine's.
    pub fn bind(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpListener::bind(address).with_context(|| {
            format!("cannot listen on {address} for --metrics; give an address of this machine and a port that is free")
        })?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Where the metrics are.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Answers from now on, on a thread of its own, with what `source` says.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn serve(
        self,
        source: impl Fn() -> anyhow::Result<Option<Report>> + Send + 'static,
    ) -> anyhow::Result<Server> {
        let (end, ended) = oneshot::channel();
        let shelf = Arc::new(Shelf {
            source: Mutex::new((Box::new(source), None)),
        });
        let answer = move || {
            // The threads of a controller have what it needs, and no more. Whoever has less cannot give up more.
            let _ = privileges::keep_needed();
            // Others come first. If it cannot be, they share.
            let _ = setpriority_process(None, NICE);
            let done = runtime().and_then(|runtime| {
                runtime.block_on(async {
                    tokio::select! {
                        done = listen(self.socket, shelf) => done,
                        _ = ended => Ok(()),
                    }
                })
            });
            if let Err(error) = done {
                log::error!("no metrics from now on: {error:#}");
            }
        };
        let thread = thread::Builder::new()
            .name("perturb-serve".into())
            .spawn(answer)
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

/// The last report, as text in both forms.
struct Shelf {
    source: Mutex<(Source, Option<Read>)>,
}

struct Read {
    at: Instant,
    texts: [Bytes; 2],
}

impl Shelf {
    /// The metrics; nothing if nothing is emulated.
    fn metrics(&self, form: Form) -> anyhow::Result<Option<Bytes>> {
        let mut shelf = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let (source, read) = &mut *shelf;
        if read.as_ref().is_none_or(|read| read.at.elapsed() > FRESH) {
            *read = None;
            let Some(report) = source()? else { return Ok(None) };
            let text = |form| exposition(&report, form).map(Bytes::from);
            *read = Some(Read {
                at: Instant::now(),
                texts: [text(Form::OpenMetrics)?, text(Form::Prometheus)?],
            });
        }
        let texts = read.as_ref().map(|read| &read.texts);
        Ok(texts.map(|[open, plain]| if form == Form::OpenMetrics { open } else { plain }.clone()))
    }
}

async fn listen(socket: TcpListener, shelf: Arc<Shelf>) -> anyhow::Result<()> {
    let socket = tokio::net::TcpListener::from_std(socket).context("waiting for connections")?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&room).acquire_owned().await?;
        match socket.accept().await {
            Ok((stream, _)) => {
                let shelf = Arc::clone(&shelf);
                tokio::spawn(async move {
                    // Whoever asks wrongly, or reads too slowly, has had an answer or none.
                    let _ = timeout(PATIENCE, converse(stream, &shelf)).await;
                    drop(place);
                });
            }
            // One that was given up, or no descriptors left for a moment.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// One question and its answer: whoever wants more connects again.
async fn converse(stream: TcpStream, shelf: &Shelf) -> hyper::Result<()> {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(&request, shelf)) });
    http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn answer(request: &Request<Incoming>, shelf: &Shelf) -> Answer {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return problem(
            StatusCode::METHOD_NOT_ALLOWED,
            "metrics can only be read: GET /metrics",
        );
    }
    if request.uri().path() != "/metrics" {
        return problem(StatusCode::NOT_FOUND, "there is /metrics, and nothing else");
    }
    let form = Form::accepted(request.headers().get(header::ACCEPT));
    match shelf.metrics(form) {
        Ok(Some(metrics)) => text(form.content_type(), metrics),
        Ok(None) => problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "nothing is emulated yet, or any more: ask again",
        ),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
    }
}

/// An answer with a body.
pub(crate) fn text(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, content_type);
    answer
}
