//! The local API: what may be asked of an emulation over its socket.

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Channel, Either, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
};
use perturb_emulator::{
    prepared::Prepared, registry::Record, running::Running, session::Handle, status::Report,
};
use perturb_profile::{Files, Loaded};
use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use serde_json::Value;
use tokio::{
    sync::{
        Mutex, Semaphore,
        broadcast::{self, Receiver, error::RecvError},
    },
    task::spawn_blocking,
    time::{sleep, timeout},
};
use utoipa::{OpenApi, ToSchema};

use crate::{
    problem::{Problem, not_allowed},
    server::{Answer, own, own_record, text},
};

/// The longest body that is read, bytes.
const LONGEST: usize = 4 << 20;
/// How long it may take to come.
const HEARING: Duration = Duration::from_secs(10);
/// How long a change waits for other commands.
const PATIENCE: Duration = Duration::from_secs(20);
/// How soon it is tried again.
const AGAIN: Duration = Duration::from_millis(50);
/// Who may listen to events at a time: these connections last, and others are to be answered meanwhile.
const LISTENERS: usize = 32;
/// How long a listener hears nothing, at most: so those that are gone are found.
const SILENCE: Duration = Duration::from_secs(10);
static LISTENING: Semaphore = Semaphore::const_new(LISTENERS);
/// One change at a time, from what it reads to what it puts in force: no patch undoes another.
static CHANGING: Mutex<()> = Mutex::const_new(());
/// Events that may wait for a reader. One that is slower misses some, and is told how many.
const WAITING: usize = 256;
pub(crate) const YAML: &str = "application/yaml";
const JSON: &str = "application/json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
const EVENTS: &str = "text/event-stream";

/// Something that the controller says.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Event {
    /// Seconds since 1970.
    pub time: f64,
    /// `error`, `warn` or `info`.
    pub level: String,
    /// What it says.
    pub message: String,
}

impl Event {
    /// One of now.
    #[must_use]
    pub fn now(level: log::Level, message: String) -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self {
            time: since.as_secs_f64(),
            level: level.as_str().to_lowercase(),
            message,
        }
    }
}

/// Where the controller says what it says.
pub type Events = broadcast::Sender<Event>;

/// Makes such a place.
#[must_use]
pub fn events() -> Events {
    broadcast::channel(WAITING).0
}

/// What the API may do with an emulation.
#[derive(Clone)]
pub struct Controls {
    /// The session.
    pub handle: Handle,
    /// The files that the first profile names: later ones may name these.
    pub files: Files,
    /// The addresses of private hosts, if there are any.
    pub hosts: Option<Vec<Vec<IpAddr>>>,
    /// What the ways to them take already, one way: [`Prepared::nearer`].
    pub trips: Vec<Duration>,
    /// Whether a packet's whole path is folded at once.
    pub coarse: bool,
    /// What the controller says.
    pub events: Events,
}

/// Paths, and what may be done with each.
const PATHS: &[(&str, &str)] = &[
    ("/v1/status", "GET"),
    ("/v1/profile", "GET, PUT, PATCH"),
    ("/v1/pause", "POST"),
    ("/v1/resume", "POST"),
    ("/v1/confirm", "POST"),
    ("/v1/clear", "POST"),
    ("/v1/events", "GET"),
    ("/v1/openapi.json", "GET"),
];

/// Answers what is asked over the socket, metrics apart.
pub(crate) async fn answer(request: Request<Incoming>, controls: Arc<Controls>) -> Answer {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    // The whole question is heard first: who still writes it when the answer comes may never see that.
    let body = read(body).await;
    let done = match (&head.method, path) {
        (&Method::GET, "/v1/status") => status(),
        (&Method::GET, "/v1/profile") => profile(),
        (&Method::PUT, "/v1/profile") => put_profile(body, controls).await,
        (&Method::PATCH, "/v1/profile") => {
            patch_profile(head.headers.get(CONTENT_TYPE), body, controls).await
        }
        (&Method::POST, "/v1/pause") => pause(controls).await,
        (&Method::POST, "/v1/resume") => resume(controls).await,
        (&Method::POST, "/v1/confirm") => confirm(controls).await,
        (&Method::POST, "/v1/clear") => clear(),
        (&Method::GET, "/v1/events") => events_of(controls.events.subscribe()),
        (&Method::GET, "/v1/openapi.json") => Ok(text(JSON, openapi())),
        _ => match PATHS.iter().find(|(known, _)| *known == path) {
            Some((_, methods)) => Ok(not_allowed(methods)),
            None => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "there is no such path: GET /v1/openapi.json says what there is",
            )),
        },
    };
    done.unwrap_or_else(|problem| problem.answer())
}

/// What the API is, as OpenAPI has it.
#[must_use]
pub fn openapi() -> String {
    Description::openapi().to_pretty_json().unwrap_or_default()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "perturb",
        description = "An emulation, asked and changed over its Unix socket. Errors are problem+json (RFC 9457).",
        license(name = "MIT OR Apache-2.0"),
    ),
    servers((url = "http://perturb", description = "The socket: curl --unix-socket /run/perturb/ID/api http://perturb/v1/status")),
    paths(status, profile, put_profile, patch_profile, pause, resume, confirm, clear, events_of),
)]
struct Description;

type Done = Result<Answer, Problem>;

fn record() -> Result<Record, Problem> {
    let record = own_record().map_err(|error| Problem::internal(&error))?;
    record.ok_or_else(Problem::gone)
}

/// What the emulation has done so far
#[utoipa::path(get, path = "/v1/status", responses(
    (status = 200, body = Report, content_type = JSON),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
fn status() -> Done {
    let report = own()
        .map_err(|error| Problem::internal(&error))?
        .ok_or_else(Problem::gone)?;
    let body = serde_json::to_vec(&report).context("writing the report");
    Ok(text(JSON, body.map_err(|error| Problem::internal(&error))?))
}

/// The profile in force, normalized
#[utoipa::path(get, path = "/v1/profile", responses(
    (status = 200, body = String, content_type = YAML),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
fn profile() -> Done {
    Ok(text(YAML, record()?.in_force.profile))
}

/// Put another profile in force
///
/// As `perturb apply` does for an emulation that runs: servers of the same name keep their state, timelines their clock.
/// It may name the files of the first profile, and no others.
#[utoipa::path(put, path = "/v1/profile", request_body(content = String, content_type = YAML), responses(
    (status = 200, description = "It is in force: normalized", body = String, content_type = YAML),
    (status = 409, description = "It cannot take effect now", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It is invalid", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
async fn put_profile(body: Result<String, Problem>, controls: Arc<Controls>) -> Done {
    let body = body?;
    let _alone = CHANGING.lock().await;
    put(body, controls).await
}

/// Change a part of the profile in force
///
/// A JSON merge patch (RFC 7396) of the normalized profile: `{"servers": {"up": {"latency": "80ms"}}}`.
#[utoipa::path(patch, path = "/v1/profile", request_body(content = Object, content_type = MERGE_PATCH), responses(
    (status = 200, description = "It is in force: normalized", body = String, content_type = YAML),
    (status = 409, description = "It cannot take effect now", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It is invalid", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
async fn patch_profile(
    kind: Option<&HeaderValue>,
    body: Result<String, Problem>,
    controls: Arc<Controls>,
) -> Done {
    let kind = kind.and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with(MERGE_PATCH) || kind.starts_with(JSON)) {
        let what =
            format!("a change is a JSON merge patch: Content-Type: {MERGE_PATCH}; PUT takes a whole profile");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let body = body?;
    let invalid =
        |error: String| Problem::new(StatusCode::BAD_REQUEST, format!("the body is no JSON: {error}"));
    let patch: Value = serde_json::from_str(&body).map_err(|error| invalid(error.to_string()))?;
    let _alone = CHANGING.lock().await;
    let now = serde_saphyr::from_str::<Value>(&record()?.in_force.profile);
    let mut merged =
        now.map_err(|error| Problem::internal(&anyhow::anyhow!("reading the profile in force: {error}")))?;
    merge(&mut merged, patch);
    put(merged.to_string(), controls).await
}

/// A merge patch (RFC 7396, section 2).
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.shift_remove(&key);
            } else {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
    }
}

async fn put(profile: String, controls: Arc<Controls>) -> Done {
    let invalid =
        |error: &dyn std::fmt::Display| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
    let given = Arc::clone(&controls);
    let prepare = move || {
        let profile = perturb_profile::parse(&profile).map_err(|error| invalid(&error))?;
        let files = given.files.clone();
        let prepared = match &given.hosts {
            Some(hosts) => {
                Prepared::between(profile, files, hosts).and_then(|prepared| prepared.nearer(&given.trips))
            }
            None => Prepared::found(Loaded { profile, files }),
        };
        prepared.map_err(|error| invalid(&error))
    };
    // Hosts may have to be looked up.
    let prepared = spawn_blocking(prepare).await;
    let prepared = prepared.map_err(|error| Problem::internal(&error.into()))??;
    let prepared = Arc::new(prepared.coarse_if(controls.coarse));
    ask(&controls, move |running| running.change(&prepared)).await?;
    log::info!("the profile was changed over the socket");
    self::profile()
}

/// Let traffic pass untouched
///
/// Until it is resumed. What passes meanwhile counts as `events.paused`.
#[utoipa::path(post, path = "/v1/pause", responses(
    (status = 204, description = "Traffic passes untouched from now on"),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
async fn pause(controls: Arc<Controls>) -> Done {
    ask(&controls, |running| running.pause(true)).await?;
    log::info!("paused over the socket: traffic passes untouched");
    Ok(nothing())
}

/// Emulate again
#[utoipa::path(post, path = "/v1/resume", responses(
    (status = 204, description = "Traffic is emulated from now on"),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
async fn resume(controls: Arc<Controls>) -> Done {
    ask(&controls, |running| running.pause(false)).await?;
    log::info!("resumed over the socket");
    Ok(nothing())
}

/// Keep what `apply --confirm` would undo
#[utoipa::path(post, path = "/v1/confirm", responses(
    (status = 204, description = "It is kept, or nothing waited to be confirmed"),
    (status = 409, description = "It is too late", body = Problem, content_type = "application/problem+json"),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
async fn confirm(controls: Arc<Controls>) -> Done {
    ask(&controls, Running::confirm).await?;
    Ok(nothing())
}

/// End the emulation
///
/// As `perturb clear` does: what the emulation made is removed. The command of `perturb run` gets SIGTERM.
#[utoipa::path(post, path = "/v1/clear", responses(
    (status = 204, description = "It ends now"),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
fn clear() -> Done {
    record()?;
    // The session is where signals are handled, whoever sends them.
    let sent = kill_process(getpid(), Signal::TERM).context("ending the emulation");
    sent.map_err(|error| Problem::internal(&error))?;
    log::info!("ended over the socket");
    Ok(nothing())
}

fn nothing() -> Answer {
    let mut answer = text(JSON, "");
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer.headers_mut().remove(CONTENT_TYPE);
    answer
}

/// Has the session change the emulation; waits for other commands that change the registry, as they wait for each other.
async fn ask(
    controls: &Controls,
    change: impl Fn(&mut Running) -> anyhow::Result<bool> + Clone + Send + 'static,
) -> Result<(), Problem> {
    let start = Instant::now();
    loop {
        let (handle, change) = (controls.handle.clone(), change.clone());
        // The session has other things to do: neither metrics nor events wait for it.
        let asked = spawn_blocking(move || handle.ask(|core| core.running().map(change))).await;
        match asked {
            Ok(Ok(Some(Ok(true)))) => return Ok(()),
            Ok(Ok(Some(Ok(false)))) if start.elapsed() < PATIENCE => sleep(AGAIN).await,
            Ok(Ok(Some(Ok(false)))) => {
                return Err(Problem::new(
                    StatusCode::CONFLICT,
                    "another command changes what is applied on this machine, and does not come to its end: try again",
                ));
            }
            Ok(Ok(Some(Err(error)))) => return Err(Problem::new(StatusCode::CONFLICT, format!("{error:#}"))),
            Ok(Ok(None) | Err(_)) | Err(_) => return Err(Problem::gone()),
        }
    }
}

/// The body of a question. What is too much of it is read, too, and forgotten.
async fn read(mut body: Incoming) -> Result<String, Problem> {
    let reading = async {
        let read = Limited::new(&mut body, LONGEST).collect().await;
        if read.is_err() {
            while let Some(Ok(_)) = body.frame().await {}
        }
        read
    };
    let read = timeout(HEARING, reading).await.map_err(|_| {
        let what = format!("the body has not come within {} s", HEARING.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, what)
    })?;
    let read = read.map_err(|error| {
        let what = format!("the body cannot be read, or is longer than {LONGEST} bytes: {error}");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what)
    })?;
    let read = String::from_utf8(read.to_bytes().into());
    read.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not in UTF-8"))
}

/// What the controller says from now on
///
/// Server-sent events: `event: said` with an event as JSON; `event: missed` with the number of those for which the reader was too
/// slow.
#[utoipa::path(get, path = "/v1/events", responses(
    (status = 200, body = Event, content_type = EVENTS),
    (status = "default", description = "An error", body = Problem, content_type = "application/problem+json"),
))]
fn events_of(mut said: Receiver<Event>) -> Done {
    let place = LISTENING.try_acquire().map_err(|_| {
        let what = format!("{LISTENERS} readers listen to events already: end one of them");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, what)
    })?;
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        let _place = place;
        // The head of the answer goes out with it.
        let mut text = ": events\n\n".to_owned();
        // An error: nobody reads any more.
        while sender.send_data(text.into()).await.is_ok() {
            text = match timeout(SILENCE, said.recv()).await {
                Err(_) => ":\n\n".to_owned(),
                Ok(Ok(event)) => format!(
                    "event: said\ndata: {}\n\n",
                    serde_json::to_string(&event).unwrap_or_default()
                ),
                Ok(Err(RecvError::Lagged(missed))) => format!("event: missed\ndata: {missed}\n\n"),
                Ok(Err(RecvError::Closed)) => return,
            };
        }
    });
    Ok(text(EVENTS, "").map(|_| Either::Right(body)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge;

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn patches_merge_as_the_standard_has_it() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, patch.clone());
            assert_eq!(merged, expected, "{target} {patch}");
        }
    }
}
