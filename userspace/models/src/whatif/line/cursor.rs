//! Plain JSON values, read in place.

use super::LineProblem;

/// A plain JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'l> {
    /// A number with a sign, a fraction or an exponent, or a large one.
    Number(f64),
    /// An integer without sign or fraction.
    Integer(u64),
    /// A string.
    Text(std::borrow::Cow<'l, str>),
    /// `true`, `false` or `null`.
    Other,
}

/// A place in a line.
pub(super) struct Cursor<'l> {
    pub(super) text: &'l str,
    pub(super) at: usize,
}

impl<'l> Cursor<'l> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    pub(super) fn sign(&mut self, sign: u8, expected: &'static str) -> Result<(), LineProblem> {
        self.blanks();
        if self.peek() != Some(sign) {
            return Err(LineProblem::Syntax { expected });
        }
        self.at += 1;
        self.blanks();
        Ok(())
    }

    /// Whether another key follows.
    pub(super) fn more(&mut self) -> Result<bool, LineProblem> {
        self.blanks();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.blanks();
                Ok(true)
            }
            Some(b'}') => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(LineProblem::Syntax {
                expected: "`,` or `}`",
            }),
        }
    }

    pub(super) fn string(&mut self) -> Result<std::borrow::Cow<'l, str>, LineProblem> {
        if self.peek() != Some(b'"') {
            return Err(LineProblem::Syntax {
                expected: "a string in double quotes",
            });
        }
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                None => {
                    return Err(LineProblem::Syntax {
                        expected: "the closing `\"`",
                    });
                }
                Some(b'"') => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => return self.escaped(start).map(Into::into),
                Some(0..=0x1f) => {
                    return Err(LineProblem::Syntax {
                        expected: "no control character in a string",
                    });
                }
                Some(_) => self.at += 1,
            }
        }
    }

    /// A string with escapes, from the first one on.
    fn escaped(&mut self, start: usize) -> Result<String, LineProblem> {
        const ESCAPE: LineProblem = LineProblem::Syntax {
            expected: "a JSON escape",
        };
        let mut text = self.text[start..self.at].to_owned();
        loop {
            let rest = &self.text[self.at..];
            let Some(first) = rest.chars().next() else {
                return Err(LineProblem::Syntax {
                    expected: "the closing `\"`",
                });
            };
            self.at += first.len_utf8();
            match first {
                '"' => return Ok(text),
                '\\' => {
                    let escape = self.peek().ok_or(ESCAPE)?;
                    self.at += 1;
                    text.push(match escape {
                        b'"' | b'\\' | b'/' => char::from(escape),
                        b'b' => '\u{8}',
                        b'f' => '\u{c}',
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        b'u' => {
                            let high = self.hex().ok_or(ESCAPE)?;
                            let code = if (0xd800..0xdc00).contains(&high) {
                                if !self.text[self.at..].starts_with("\\u") {
                                    return Err(ESCAPE);
                                }
                                self.at += 2;
                                let low = self
                                    .hex()
                                    .filter(|low| (0xdc00..0xe000).contains(low))
                                    .ok_or(ESCAPE)?;
                                0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                            } else {
                                high
                            };
                            char::from_u32(code).ok_or(ESCAPE)?
                        }
                        _ => return Err(ESCAPE),
                    });
                }
                c if c < ' ' => {
                    return Err(LineProblem::Syntax {
                        expected: "no control character in a string",
                    });
                }
                c => text.push(c),
            }
        }
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit())
            .then(|| u32::from_str_radix(digits, 16).ok())?
    }

    pub(super) fn value(&mut self) -> Result<Value<'l>, LineProblem> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for word in ["true", "false", "null"] {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(Value::Other);
                    }
                }
                Err(LineProblem::Syntax {
                    expected: "a string or a number",
                })
            }
        }
    }

    fn number(&mut self) -> Result<Value<'l>, LineProblem> {
        let start = self.at;
        let mut integer = Some(0_u64);
        while let Some(byte) = self.peek() {
            match byte {
                b'0'..=b'9' => {
                    integer = integer
                        .and_then(|value| value.checked_mul(10))
                        .and_then(|value| value.checked_add(u64::from(byte - b'0')));
                }
                b'-' | b'+' | b'.' | b'e' | b'E' => integer = None,
                _ => break,
            }
            self.at += 1;
        }
        if let Some(integer) = integer {
            return Ok(Value::Integer(integer));
        }
        match self.text[start..self.at].parse() {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => {
                self.at = start;
                Err(LineProblem::Syntax { expected: "a number" })
            }
        }
    }
}
