//! Frames between host and guest, over the guest's first serial line.
//!
//! Model: a reliable, ordered byte stream each way; a frame is `kind: u8, length: u32 LE, payload`.
//! Two windows towards the guest. At most [`LINE_WINDOW`] bytes are on the line unread: the user-mode kernel's
//! serial driver (6.1, `line_unthrottle`) does not come back once its 4 KiB receive buffer has been full. And at
//! most [`STDIN_WINDOW`] bytes of standard input are ahead of the command, so that one which does not read
//! cannot block signals behind its input.
//! There is no version and no checksum: both ends are the same executable, the line is a socket pair.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
};

use crate::error::WireError;

/// Bytes that may be on the line before the guest has read them, well below the driver's throttle at 3968.
pub(crate) const LINE_WINDOW: usize = 2048;
/// Bytes of standard input that may be under way to the command.
pub(crate) const STDIN_WINDOW: usize = 32 * 1024;
/// Bytes of data in one frame: what a pipe that polls writable takes without blocking.
pub(crate) const CHUNK: usize = 4096;
const HEADER: usize = 5;
/// Larger than any request the kernel's own limits on arguments and environment allow.
const MAX_PAYLOAD: usize = 8 << 20;

/// What the guest is to run, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Request {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<OsString>,
    pub(crate) cwd: PathBuf,
    pub(crate) hostname: OsString,
    /// The directory that holds the guest's modules, one subdirectory per kernel version.
    pub(crate) modules: PathBuf,
    pub(crate) modprobe: PathBuf,
    pub(crate) writable: Vec<PathBuf>,
    /// Rows and columns, when the command is to have a terminal.
    pub(crate) terminal: Option<WindowSize>,
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowSize {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

/// Frames the host sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToGuest {
    Start(Box<Request>),
    Stdin(Vec<u8>),
    StdinEof,
    Signal(i32),
    Resize(WindowSize),
}

/// Frames the guest sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToHost {
    /// The line is raw and may be written to.
    Hello,
    /// The command runs.
    Started,
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// So many bytes were read off the line.
    Read(u32),
    /// So many bytes of input were taken by the command.
    Credit(u32),
    /// The command closed its input.
    StdinClosed,
    /// The command's wait status; everything it wrote precedes this frame.
    Exit(i32),
    /// The guest could not be set up.
    Failed {
        step: String,
        reason: String,
    },
}

/// A frame that can travel.
pub(crate) trait Frame: Sized {
    fn kind(&self) -> u8;
    fn payload(&self) -> Vec<u8>;
    fn parse(kind: u8, payload: Vec<u8>) -> Result<Self, WireError>;

    fn encode(&self) -> Vec<u8> {
        let payload = self.payload();
        let mut bytes = Vec::with_capacity(HEADER + payload.len());
        bytes.push(self.kind());
        // Payloads are bounded by MAX_PAYLOAD, far below u32::MAX.
        bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }
}

impl Frame for ToGuest {
    fn kind(&self) -> u8 {
        match self {
            Self::Start(_) => 1,
            Self::Stdin(_) => 2,
            Self::StdinEof => 3,
            Self::Signal(_) => 4,
            Self::Resize(_) => 5,
        }
    }

    fn payload(&self) -> Vec<u8> {
        match self {
            Self::Start(request) => request.encode(),
            Self::Stdin(data) => data.clone(),
            Self::StdinEof => Vec::new(),
            Self::Signal(number) => number.to_le_bytes().to_vec(),
            Self::Resize(size) => size.encode(),
        }
    }

    fn parse(kind: u8, payload: Vec<u8>) -> Result<Self, WireError> {
        let mut fields = Fields::new(&payload);
        match kind {
            1 => Ok(Self::Start(Box::new(Request::parse(&mut fields)?))),
            2 => Ok(Self::Stdin(payload)),
            3 => Ok(Self::StdinEof),
            4 => Ok(Self::Signal(i32::from_le_bytes(fields.array()?))),
            5 => Ok(Self::Resize(WindowSize::parse(&mut fields)?)),
            kind => Err(WireError::UnknownKind { kind }),
        }
    }
}

impl Frame for ToHost {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello => 65,
            Self::Started => 66,
            Self::Stdout(_) => 67,
            Self::Stderr(_) => 68,
            Self::Credit(_) => 69,
            Self::StdinClosed => 70,
            Self::Exit(_) => 71,
            Self::Failed { .. } => 72,
            Self::Read(_) => 73,
        }
    }

    fn payload(&self) -> Vec<u8> {
        match self {
            Self::Hello | Self::Started | Self::StdinClosed => Vec::new(),
            Self::Stdout(data) | Self::Stderr(data) => data.clone(),
            Self::Credit(bytes) | Self::Read(bytes) => bytes.to_le_bytes().to_vec(),
            Self::Exit(status) => status.to_le_bytes().to_vec(),
            Self::Failed { step, reason } => {
                let mut out = Vec::new();
                put_bytes(&mut out, step.as_bytes());
                put_bytes(&mut out, reason.as_bytes());
                out
            }
        }
    }

    fn parse(kind: u8, payload: Vec<u8>) -> Result<Self, WireError> {
        let mut fields = Fields::new(&payload);
        match kind {
            65 => Ok(Self::Hello),
            66 => Ok(Self::Started),
            67 => Ok(Self::Stdout(payload)),
            68 => Ok(Self::Stderr(payload)),
            69 => Ok(Self::Credit(u32::from_le_bytes(fields.array()?))),
            70 => Ok(Self::StdinClosed),
            71 => Ok(Self::Exit(i32::from_le_bytes(fields.array()?))),
            72 => Ok(Self::Failed {
                step: String::from_utf8_lossy(fields.bytes()?).into_owned(),
                reason: String::from_utf8_lossy(fields.bytes()?).into_owned(),
            }),
            73 => Ok(Self::Read(u32::from_le_bytes(fields.array()?))),
            kind => Err(WireError::UnknownKind { kind }),
        }
    }
}

impl Request {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_list(&mut out, self.argv.iter().map(|arg| arg.as_bytes()));
        put_list(&mut out, self.env.iter().map(|pair| pair.as_bytes()));
        put_bytes(&mut out, self.cwd.as_os_str().as_bytes());
        put_bytes(&mut out, self.hostname.as_bytes());
        put_bytes(&mut out, self.modules.as_os_str().as_bytes());
        put_bytes(&mut out, self.modprobe.as_os_str().as_bytes());
        put_list(
            &mut out,
            self.writable.iter().map(|path| path.as_os_str().as_bytes()),
        );
        if let Some(size) = self.terminal {
            out.extend_from_slice(&size.encode());
        }
        out
    }

    fn parse(fields: &mut Fields<'_>) -> Result<Self, WireError> {
        Ok(Self {
            argv: fields.list()?,
            env: fields.list()?,
            cwd: fields.string()?.into(),
            hostname: fields.string()?,
            modules: fields.string()?.into(),
            modprobe: fields.string()?.into(),
            writable: fields.list()?.into_iter().map(PathBuf::from).collect(),
            terminal: if fields.rest.is_empty() {
                None
            } else {
                Some(WindowSize::parse(fields)?)
            },
        })
    }
}

impl WindowSize {
    fn encode(self) -> Vec<u8> {
        [self.rows.to_le_bytes(), self.columns.to_le_bytes()].concat()
    }

    fn parse(fields: &mut Fields<'_>) -> Result<Self, WireError> {
        Ok(Self {
            rows: u16::from_le_bytes(fields.array()?),
            columns: u16::from_le_bytes(fields.array()?),
        })
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_list<'a, I>(out: &mut Vec<u8>, items: I)
where
    I: ExactSizeIterator<Item = &'a [u8]>,
{
    out.extend_from_slice(&u32::try_from(items.len()).unwrap_or(u32::MAX).to_le_bytes());
    for item in items {
        put_bytes(out, item);
    }
}

/// Reads a payload field by field.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        let (head, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    fn string(&mut self) -> Result<OsString, WireError> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }

    fn list(&mut self) -> Result<Vec<OsString>, WireError> {
        let count = u32::from_le_bytes(self.array()?);
        (0..count).map(|_| self.string()).collect()
    }
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if one has arrived.
    pub(crate) fn next<F: Frame>(&mut self) -> Result<Option<F>, WireError> {
        let Some((&[kind, l0, l1, l2, l3], rest)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > MAX_PAYLOAD {
            return Err(WireError::TooLong {
                length,
                limit: MAX_PAYLOAD,
            });
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.buffer.drain(..HEADER + length);
        F::parse(kind, payload).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            argv: vec![
                "sh".into(),
                "-c".into(),
                "printf '%s' \"$1\"".into(),
                OsString::from_vec(vec![0xff, 0xfe, b'\n']),
            ],
            env: vec!["A=".into(), "B=x y".into()],
            cwd: "/some where".into(),
            hostname: "h".into(),
            modules: "/m".into(),
            modprobe: "/sbin/modprobe".into(),
            writable: vec!["/a".into(), "/b".into()],
            terminal: Some(WindowSize {
                rows: 24,
                columns: 80,
            }),
        }
    }

    #[test]
    fn frames_survive_any_split() {
        let frames = [
            ToGuest::Start(Box::new(request())),
            ToGuest::Stdin(vec![1, 2, 3]),
            ToGuest::StdinEof,
            ToGuest::Signal(2),
            ToGuest::Resize(WindowSize {
                rows: 1,
                columns: 65535,
            }),
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for step in [1, 2, 3, 7, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(step) {
                decoder.push(piece);
                while let Some(frame) = decoder.next::<ToGuest>().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames);
        }
    }

    #[test]
    fn a_truncated_payload_is_an_error() {
        let whole = ToGuest::Start(Box::new(request())).payload();
        // Four bytes less is a request without a terminal; every other cut is an error.
        for length in (0..whole.len()).filter(|length| *length != whole.len() - 4) {
            let parsed = ToGuest::parse(1, whole[..length].to_vec());
            assert!(
                matches!(parsed, Err(WireError::Truncated)),
                "{length}: {parsed:?}"
            );
        }
    }

    #[test]
    fn a_stray_line_is_refused() {
        let mut decoder = Decoder::default();
        decoder.push(b"Kernel panic - not syncing");
        assert!(matches!(decoder.next::<ToHost>(), Err(WireError::TooLong { .. })));
        let mut decoder = Decoder::default();
        decoder.push(&[9, 0, 0, 0, 0]);
        assert!(matches!(
            decoder.next::<ToHost>(),
            Err(WireError::UnknownKind { kind: 9 })
        ));
    }
}
