//! Where events come from: a file, a pipe or a socket, read line by line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::super::input::InputError;

/// A longer line is no event.
const LONGEST_LINE: usize = 1 << 20;

/// A line that does not end.
#[derive(Debug, thiserror::Error)]
#[error("line {line} is longer than {LONGEST_LINE} bytes; an event is one short JSON object per line")]
struct LongLine {
    line: u64,
}

/// What the source has next.
pub(super) enum Line<'a> {
    /// A line, without its end.
    Whole(&'a [u8]),
    /// Nothing yet: a file that may still grow.
    Waiting,
    /// Nothing any more.
    End,
}

/// An open source of events.
pub(super) struct Events {
    name: String,
    input: BufReader<Box<dyn Read>>,
    /// A file that is followed beyond its end.
    grows: bool,
    line: Vec<u8>,
    /// The line was handed out; the next read begins a new one.
    taken: bool,
    count: u64,
}

impl Events {
    /// Opens a source; see the command's help for its forms.
    pub(super) fn open(source: &str, follow: bool) -> Result<Self, InputError> {
        let mut grows = false;
        let opened: std::io::Result<Box<dyn Read>> = if source == "-" {
            Ok(Box::new(std::io::stdin()))
        } else if let Some(address) = source.strip_prefix("tcp:") {
            TcpStream::connect(address).map(|stream| Box::new(stream) as Box<dyn Read>)
        } else {
            match std::fs::metadata(source) {
                Ok(found) if found.file_type().is_socket() => {
                    UnixStream::connect(source).map(|stream| Box::new(stream) as Box<dyn Read>)
                }
                Ok(found) => {
                    grows = follow && found.is_file();
                    File::open(source).map(|file| Box::new(file) as Box<dyn Read>)
                }
                Err(error) => Err(error),
            }
        };
        match opened {
            Ok(input) => Ok(Self {
                name: source.to_owned(),
                input: BufReader::with_capacity(1 << 18, input),
                grows,
                line: Vec::new(),
                taken: false,
                count: 0,
            }),
            Err(error) => Err(InputError::Read {
                file: source.to_owned(),
                source: error,
            }),
        }
    }

    /// The next line. One without its end counts only where no more can come.
    pub(super) fn next(&mut self) -> Result<Line<'_>, InputError> {
        if std::mem::take(&mut self.taken) {
            self.line.clear();
        }
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    return Err(InputError::Read {
                        file: self.name.clone(),
                        source,
                    });
                }
            };
            if chunk.is_empty() {
                if self.grows {
                    return Ok(Line::Waiting);
                }
                if self.line.is_empty() {
                    return Ok(Line::End);
                }
                self.taken = true;
                self.count += 1;
                return Ok(Line::Whole(&self.line));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let used = end.unwrap_or(chunk.len());
            if self.line.len() + used > LONGEST_LINE {
                return Err(InputError::model(
                    Path::new(&self.name),
                    LongLine { line: self.count + 1 },
                ));
            }
            self.line.extend_from_slice(&chunk[..used]);
            self.input.consume(used + usize::from(end.is_some()));
            if end.is_some() {
                self.taken = true;
                self.count += 1;
                return Ok(Line::Whole(&self.line));
            }
        }
    }
}
