//! Base64 with padding: Go's `base64.StdEncoding`.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Digits of a group, which stand for three bytes.
const GROUP: usize = 4;

pub(super) fn encode_64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(GROUP));
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let number = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = usize::try_from(number >> shift & 63)
                .ok()
                .and_then(|digit| DIGITS.get(digit));
            let is_used = index <= chunk.len();
            out.push(digit.filter(|_| is_used).map_or('=', |digit| char::from(*digit)));
        }
    }
    out
}

/// The value of a digit.
fn value(byte: u8) -> Option<u32> {
    let found = DIGITS.iter().position(|digit| *digit == byte);
    found.and_then(|value| u32::try_from(value).ok())
}

/// Appends the bytes that the digits of a group make, of which the last ones may be missing.
fn unpack(out: &mut Vec<u8>, values: &[u32]) {
    let padded = values.iter().chain(&[0, 0, 0]).take(GROUP);
    let [_, bytes @ ..] = padded.fold(0, |number, value| number << 6 | value).to_be_bytes();
    out.extend(bytes.into_iter().take(values.len().saturating_sub(1)));
}

fn illegal(at: usize) -> String {
    format!("illegal base64 data at input byte {at}")
}

/// Decodes base64. Line breaks are skipped, but count in the position that the error names.
pub(super) fn decode_64(text: &str) -> Result<Vec<u8>, String> {
    let end = text.len();
    let mut input = text
        .bytes()
        .enumerate()
        .filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    let mut out = Vec::with_capacity(end / GROUP * 3);
    let mut group = Vec::with_capacity(GROUP);
    while let Some((at, byte)) = input.next() {
        if let Some(value) = value(byte) {
            group.push(value);
            if group.len() == GROUP {
                unpack(&mut out, &group);
                group.clear();
            }
            continue;
        }
        if byte != b'=' || group.len() < 2 {
            return Err(illegal(at));
        }
        if group.len() == 2 {
            match input.next() {
                None => return Err(illegal(end)),
                Some((_, b'=')) => {}
                Some((at, _)) => return Err(illegal(at.saturating_sub(1))),
            }
        }
        if let Some((at, _)) = input.next() {
            return Err(illegal(at));
        }
        unpack(&mut out, &group);
        return Ok(out);
    }
    if group.is_empty() {
        Ok(out)
    } else {
        Err(illegal(end.saturating_sub(group.len())))
    }
}
