//! A question over HTTP on a Unix socket, and its answer.

use std::{io, path::Path};

use http_body_util::Full;
pub use hyper::{Method, Response, StatusCode};
use hyper::{
    Request,
    body::{Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens, or this user may not ask.
    #[error("{0}")]
    Socket(#[source] io::Error),
    /// The connection broke, or the question has no form that HTTP knows.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl From<hyper::Error> for AskError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Asks who listens at a socket: a method, a path, and a body with its media type. Whoever asks says how long to wait.
///
/// # Errors
/// As [`AskError`] has them; an answer that refuses is no error.
pub async fn ask(
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<(&str, String)>,
) -> Result<Response<Incoming>, AskError> {
    let stream = UnixStream::connect(socket).await.map_err(AskError::Socket)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer; what goes wrong there shows in it.
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost");
    let mut content = String::new();
    if let Some((kind, body)) = body {
        request = request.header(header::CONTENT_TYPE, kind);
        content = body;
    }
    let request = request
        .body(Full::new(Bytes::from(content)))
        .map_err(|error| AskError::Broken(error.to_string()))?;
    Ok(sender.send_request(request).await?)
}

/// The whole body of an answer.
///
/// # Errors
/// The connection broke.
pub async fn read(answer: Response<Incoming>) -> Result<Bytes, AskError> {
    use http_body_util::BodyExt as _;
    Ok(answer.into_body().collect().await?.to_bytes())
}
