//! Frames between host and guest, over the guest's first serial line.
//!
//! Model: a reliable, ordered byte stream each way; a frame is its length (`u32` LE) and [`ToGuest`] or [`ToHost`] (postcard).
//! Two windows towards the guest. At most [`LINE_WINDOW`] bytes are on the line unread: the user-mode kernel's
//! serial driver (6.1, `line_unthrottle`) does not come back once its 4 KiB receive buffer has been full. And at
//! most [`STDIN_WINDOW`] bytes of standard input are ahead of the command, so that one which does not read
//! cannot block signals behind its input.
//! There is no version and no checksum: both ends are the same executable, the line is a socket pair.

use std::ffi::OsString;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::WireError;

/// Bytes that may be on the line before the guest has read them, well below the driver's throttle at 3968.
pub(crate) const LINE_WINDOW: usize = 2048;
/// Bytes of standard input that may be under way to the command.
pub(crate) const STDIN_WINDOW: usize = 32 * 1024;
/// Bytes of data in one frame: what a pipe that polls writable takes without blocking.
pub(crate) const CHUNK: usize = 4096;
const HEADER: usize = 4;
/// Larger than any request the kernel's own limits on arguments and environment allow.
const LONGEST: usize = 8 << 20;

/// What the guest is to run, and how. Paths are any bytes, so no `PathBuf`, which travels as text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<OsString>,
    pub(crate) cwd: OsString,
    pub(crate) hostname: OsString,
    /// The directory that holds the guest's modules, one subdirectory per kernel version.
    pub(crate) modules: OsString,
    pub(crate) modprobe: OsString,
    pub(crate) writable: Vec<OsString>,
    /// Rows and columns, when the command is to have a terminal.
    pub(crate) terminal: Option<WindowSize>,
}

/// A terminal's size in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowSize {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

/// Frames the host sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToGuest {
    Start(Box<Request>),
    Stdin(Vec<u8>),
    StdinEof,
    Signal(i32),
    Resize(WindowSize),
}

/// Frames the guest sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A frame as it travels.
pub(crate) fn encode(frame: &impl Serialize) -> Vec<u8> {
    let mut bytes =
        postcard::to_extend(frame, vec![0; HEADER]).expect("all lists in frames know their lengths");
    // Frames are bounded by LONGEST, far below u32::MAX.
    let length = u32::try_from(bytes.len() - HEADER).unwrap_or(u32::MAX);
    bytes[..HEADER].copy_from_slice(&length.to_le_bytes());
    bytes
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
    pub(crate) fn next<F: DeserializeOwned>(&mut self) -> Result<Option<F>, WireError> {
        let Some((length, rest)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(WireError::TooLong {
                length,
                limit: LONGEST,
            });
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = postcard::from_bytes(frame)?;
        self.buffer.drain(..HEADER + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

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
        let bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
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
    fn a_truncated_frame_is_an_error() {
        let whole = encode(&ToGuest::Start(Box::new(request())));
        for length in 0..whole.len() - HEADER {
            let mut decoder = Decoder::default();
            decoder.push(&u32::try_from(length).unwrap().to_le_bytes());
            decoder.push(&whole[HEADER..HEADER + length]);
            let next = decoder.next::<ToGuest>();
            assert!(matches!(next, Err(WireError::Frame(_))), "{length}: {next:?}");
        }
    }

    #[test]
    fn a_stray_line_is_refused() {
        let mut decoder = Decoder::default();
        decoder.push(b"Kernel panic - not syncing");
        assert!(matches!(decoder.next::<ToHost>(), Err(WireError::TooLong { .. })));
        let mut decoder = Decoder::default();
        decoder.push(&[1, 0, 0, 0, 99]);
        assert!(matches!(decoder.next::<ToHost>(), Err(WireError::Frame(_))));
    }
}
