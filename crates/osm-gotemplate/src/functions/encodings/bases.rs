//! Base64 and base32 with padding: Go's `base64.StdEncoding` and `base32.StdEncoding`.

const BASE_64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE_32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// An encoding: its digits, how many bits each has, and how many form a group.
struct Base {
    name: &'static str,
    digits: &'static [u8],
    bits: u32,
    group: usize,
}

const SIXTY_FOUR: Base = Base {
    name: "base64",
    digits: BASE_64,
    bits: 6,
    group: 4,
};

const THIRTY_TWO: Base = Base {
    name: "base32",
    digits: BASE_32,
    bits: 5,
    group: 8,
};

pub(super) fn encode_64(bytes: &[u8]) -> String {
    SIXTY_FOUR.encode(bytes)
}

pub(super) fn encode_32(bytes: &[u8]) -> String {
    THIRTY_TWO.encode(bytes)
}

impl Base {
    fn encode(&self, bytes: &[u8]) -> String {
        let per_group = self.group.saturating_mul(self.bits as usize) / 8;
        let mut out = String::with_capacity(
            (bytes.len() / per_group)
                .saturating_add(1)
                .saturating_mul(self.group),
        );
        for chunk in bytes.chunks(per_group) {
            let mut number = 0_u64;
            for index in 0..per_group {
                number = number << 8 | u64::from(chunk.get(index).copied().unwrap_or(0));
            }
            let used = chunk.len().saturating_mul(8).div_ceil(self.bits as usize);
            for index in 0..self.group {
                let left = u32::try_from(self.group.saturating_sub(index).saturating_sub(1)).unwrap_or(0);
                let digit =
                    (number >> left.saturating_mul(self.bits)) & (1_u64 << self.bits).saturating_sub(1);
                let digit = usize::try_from(digit)
                    .ok()
                    .and_then(|digit| self.digits.get(digit));
                out.push(if index < used {
                    digit.copied().map_or('=', char::from)
                } else {
                    '='
                });
            }
        }
        out
    }

    /// The value of a digit.
    fn value(&self, byte: u8) -> Option<u64> {
        let found = self.digits.iter().position(|digit| *digit == byte);
        found.and_then(|value| u64::try_from(value).ok())
    }

    /// Appends the bytes that the digits of a group make.
    fn unpack(&self, out: &mut Vec<u8>, values: &[u64]) {
        let bits = self.bits as usize;
        let mut number = values
            .iter()
            .fold(0_u64, |number, value| number << self.bits | value);
        let total = values.len().saturating_mul(bits);
        let whole = total / 8;
        number >>= total % 8;
        for index in (0..whole).rev() {
            let byte = number >> index.saturating_mul(8) & 255;
            out.push(u8::try_from(byte).unwrap_or(0));
        }
    }
}

fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn illegal(base: &Base, at: usize) -> String {
    format!("illegal {} data at input byte {at}", base.name)
}

/// Decodes base64. Line breaks are skipped, but count in the position that the error names.
pub(super) fn decode_64(text: &str) -> Result<Vec<u8>, String> {
    let base = &SIXTY_FOUR;
    let end = text.len();
    let mut input = text.bytes().enumerate().filter(|(_, byte)| !is_line_break(*byte));
    let mut out = Vec::with_capacity(end / 4 * 3);
    let mut group = Vec::with_capacity(base.group);
    while let Some((at, byte)) = input.next() {
        if let Some(value) = base.value(byte) {
            group.push(value);
            if group.len() == base.group {
                base.unpack(&mut out, &group);
                group.clear();
            }
            continue;
        }
        if byte != b'=' || group.len() < 2 {
            return Err(illegal(base, at));
        }
        if group.len() == 2 {
            match input.next() {
                None => return Err(illegal(base, end)),
                Some((_, b'=')) => {}
                Some((at, _)) => return Err(illegal(base, at.saturating_sub(1))),
            }
        }
        if let Some((at, _)) = input.next() {
            return Err(illegal(base, at));
        }
        base.unpack(&mut out, &group);
        return Ok(out);
    }
    if group.is_empty() {
        Ok(out)
    } else {
        Err(illegal(base, end.saturating_sub(group.len())))
    }
}

/// Decodes base32. Line breaks are removed first.
pub(super) fn decode_32(text: &str) -> Result<Vec<u8>, String> {
    let base = &THIRTY_TWO;
    let input: Vec<u8> = text.bytes().filter(|byte| !is_line_break(*byte)).collect();
    let mut out = Vec::with_capacity(input.len() / 8 * 5);
    let mut group = Vec::with_capacity(base.group);
    for (at, byte) in input.iter().enumerate() {
        let rest = input.get(at.saturating_add(1)..).unwrap_or_default();
        if *byte == b'=' && group.len() >= 2 && rest.len() < 8 {
            let missing = base.group.saturating_sub(1).saturating_sub(group.len());
            if rest.len() < missing {
                return Err(illegal(base, input.len()));
            }
            if let Some(wrong) = rest.iter().take(missing).position(|byte| *byte != b'=') {
                return Err(illegal(base, at.saturating_add(wrong)));
            }
            if matches!(group.len(), 3 | 6) {
                return Err(illegal(base, at));
            }
            base.unpack(&mut out, &group);
            return Ok(out);
        }
        let Some(value) = base.value(*byte) else {
            return Err(illegal(base, at));
        };
        group.push(value);
        if group.len() == base.group {
            base.unpack(&mut out, &group);
            group.clear();
        }
    }
    if group.is_empty() {
        Ok(out)
    } else {
        Err(illegal(base, input.len().saturating_sub(group.len())))
    }
}
