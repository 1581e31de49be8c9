//! What this crate prints: the macros of the standard library's names, which do not panic when a stream is closed.
//!
//! * Standard output closed by its reader (`| head`), or on a full disk: the command unwinds at once, without a word of a
//!   panic. Guards run, so that no interface stays impaired; [`crate::cli::main`] decides what is said.
//! * Standard error that cannot be written: the message is lost, and the command goes on. A controller outlives the pipe or
//!   terminal that its messages went to.

use std::{
    fmt,
    io::{self, Write as _},
    panic,
};

use serde::Serialize;

use crate::voice;

/// Standard output cannot be written: what a command unwinds with.
#[derive(Debug)]
pub(crate) struct Unwritable(pub io::Error);

/// Writes to standard output.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().lock().write_fmt(text) {
        // Unlike `panic_any` it calls no hook, which would print.
        panic::resume_unwind(Box::new(Unwritable(error)));
    }
}

/// Writes to standard error.
pub(crate) fn error(text: fmt::Arguments<'_>) {
    voice::settle();
    // There is nowhere to say that it failed.
    let _ = io::stderr().lock().write_fmt(text);
}

/// Writes one JSON object and ends the line.
pub(crate) fn json(out: &mut dyn io::Write, value: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

macro_rules! print {
    ($($text:tt)*) => { $crate::say::out(format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::say::out(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::say::error(format_args!($($text)*)) };
}

macro_rules! eprintln {
    () => { $crate::say::error(format_args!("\n")) };
    ($($text:tt)*) => { $crate::say::error(format_args!("{}\n", format_args!($($text)*))) };
}
