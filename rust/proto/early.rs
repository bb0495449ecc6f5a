// SPDX-License-Identifier: GPL-2.0

//! Whether a receive returns before its bytes have arrived (AZ-SDP).
//!
//! Only whole pages can be made inaccessible until their bytes have arrived. The bytes in front of
//! the first whole page are read, too, but the call waits for them: this needs a second Read, and
//! is worth its cost only for a long buffer. The bytes behind the last whole page are not read.

use super::{
    choice::{
        Path,
        Reason,
        Wanted,
        MIN_UNCOPIED_BYTES, //
    },
    split::split,
};

/// The maximum number of pages of one Read into a short buffer. So few pages usually form few
/// contiguous ranges. Such a Read needs no memory key, so several Reads can be in flight. Also the
/// minimum number of pages behind bytes that the call waits for.
const PART_PAGES: u64 = 32;
/// From this number of pages on, a buffer is read into in large parts: one large Read at a time
/// keeps the adapter busy.
const LARGE_PAGES: u64 = 128;

/// The properties of a receive for which a Read of the next bytes of the stream can be posted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receive {
    /// The address of the next piece of the buffer.
    pub addr: u64,
    /// Bytes that the call may get without a copy, at most the size of the piece.
    pub room_bytes: u64,
    /// Bytes of the peer's next advert ([`super::source_reader::SourceReader::next_untaken`]).
    pub advert_bytes: u64,
    /// A page of the machine has 2^`page_shift` bytes.
    pub page_shift: u32,
    /// The maximum number of pages of one Read, which follows from the adapter.
    pub max_pages: u32,
    /// Whether there is room for two more Reads.
    pub two_reads: bool,
    /// The size of the whole call's buffer, in bytes.
    pub call_bytes: u64,
    /// Whether the call has enough bytes to return.
    pub has_enough: bool,
    /// Whether an earlier attempt of the call has shown that it must wait.
    pub excluded: bool,
    /// Whether the program is closing the connection.
    pub closing: bool,
    /// Whether the administrator allows the program to make others wait for its memory.
    pub may_hold_up: bool,
    /// The user's choice.
    pub wanted: Wanted,
    /// The minimum size of the call with [`Wanted::Automatic`]; 0 if everything is copied.
    pub threshold_bytes: u64,
    /// [`super::pause::Pause::may_go_async`] of the record of touched pages. Decides with
    /// [`Wanted::Automatic`] only.
    pub few_faults: bool,
    /// [`super::pause::Pause::may_go_async`] of the record of the time that early returns gave the
    /// program ([`super::pause::Overlap`]). Decides whatever the user has chosen.
    pub has_overlap: bool,
}

/// The next bytes of a buffer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// Bytes before the first whole page: the call waits for them.
    pub head_bytes: u64,
    /// The number of whole pages behind them, at least 1: the call does not wait for their bytes.
    pub pages: u64,
}

/// Returns the next part of the buffer for whose pages the call need not wait.
///
/// # Errors
///
/// The reason if only a pause makes the call wait for bytes: the call then counts for the pause.
/// Otherwise `None`; also if the call has enough bytes, because it returns now and waits for none.
pub fn part(receive: &Receive) -> Result<Part, Option<Reason>> {
    let may = !receive.excluded && !receive.closing && receive.may_hold_up && wants(receive);
    let part = pages(receive).filter(|_| may).ok_or(None)?;
    let obeys_faults = receive.wanted == Wanted::Automatic;
    let pause = if obeys_faults && !receive.few_faults {
        Some(Reason::TooManyFaults)
    } else if !receive.has_overlap {
        Some(Reason::NoOverlap)
    } else {
        None
    };
    match pause {
        None => Ok(part),
        why => Err(why.filter(|_| !receive.has_enough)),
    }
}

/// Whether the user wants the receive to return early.
fn wants(receive: &Receive) -> bool {
    let wanted = receive.wanted;
    wanted.admits(Path::Asynchronous)
        && wanted.admits_uncopied(receive.call_bytes, receive.threshold_bytes)
}

/// The pages of the next Read, and the bytes before them; `None` if they are not worth an early
/// return.
fn pages(receive: &Receive) -> Option<Part> {
    let bytes = receive.room_bytes.min(receive.advert_bytes);
    let parts = split(receive.addr, bytes, receive.page_shift);
    let pages = parts.middle.checked_shr(receive.page_shift)?;
    let is_worth_it = if parts.head == 0 {
        parts.middle >= MIN_UNCOPIED_BYTES.into()
    } else {
        // The call waits for the head: so it must still need bytes.
        pages >= PART_PAGES && !receive.has_enough && receive.two_reads
    };
    let most = if pages < LARGE_PAGES {
        PART_PAGES.min(receive.max_pages.into())
    } else {
        receive.max_pages.into()
    };
    (is_worth_it && most > 0).then_some(Part {
        head_bytes: parts.head,
        pages: pages.min(most),
    })
}
