// SPDX-License-Identifier: GPL-2.0

//! Generic netlink: a family, its operations, requests and messages.
//!
//! The core checks every request against the policy of the operation first, and holds the module
//! during a dump.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::{
    align_of,
    size_of, //
};

use kernel::error::to_result;
use kernel::prelude::*;
use kernel::str::CStr;

use super::netns::Net;
use super::sock::Sk;
use crate::bindings;
use crate::kern::errno::{
    EMSGSIZE,
    ENOBUFS, //
};
use crate::kern::module::{
    has_started,
    this_module, //
};
use crate::kern::shared::Shared;

/// The valid values of an attribute of a request. A policy begins with index 0, which no attribute
/// has.
pub(crate) type Policy = bindings::nla_policy;

/// An unsigned integer of one, two or four bytes, with any value.
pub(crate) const fn number(kind: u32) -> Policy {
    // SAFETY: An unused member is zero.
    let mut policy: Policy = unsafe { core::mem::zeroed() };
    policy.type_ = kind as u8;
    policy
}

/// Four bytes of flags; only those in `mask` are valid.
pub(crate) const fn flags(mask: u32) -> Policy {
    let mut policy = number(bindings::NLA_U32);
    policy.validation_type = bindings::nla_policy_validation_NLA_VALIDATE_MASK as u8;
    policy.__bindgen_anon_1.mask = mask;
    policy
}

/// One byte, with a value of at most `max`.
pub(crate) const fn at_most(max: i16) -> Policy {
    let mut policy = number(bindings::NLA_U8);
    policy.validation_type = bindings::nla_policy_validation_NLA_VALIDATE_MAX as u8;
    policy.__bindgen_anon_1.__bindgen_anon_1.max = max;
    policy
}

/// At most `len` bytes.
pub(crate) const fn bytes(len: u16) -> Policy {
    let mut policy = number(bindings::NLA_BINARY);
    policy.len = len;
    policy
}

/// An attribute that the request must not have.
pub(crate) const fn rejected() -> Policy {
    number(bindings::NLA_REJECT)
}

/// A request that is being answered.
pub(crate) struct Request<'a> {
    info: &'a bindings::genl_info,
    /// The number of the last attribute in the operation's policy.
    max: usize,
    /// The message of the request, which has the requester's socket.
    from: *const bindings::sk_buff,
}

/// The bytes of an attribute.
#[derive(Copy, Clone)]
pub(crate) struct Attr<'a> {
    raw: *const bindings::nlattr,
    payload: &'a [u8],
}

impl<'a> Attr<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.payload
    }

    /// # Errors
    ///
    /// `EINVAL` if it has another length, which the policy prevents.
    pub(crate) fn u8(self) -> Result<u8> {
        Ok(u8::from_ne_bytes(
            self.payload.try_into().map_err(|_| EINVAL)?,
        ))
    }

    /// As [`Attr::u8`].
    pub(crate) fn u16(self) -> Result<u16> {
        Ok(u16::from_ne_bytes(
            self.payload.try_into().map_err(|_| EINVAL)?,
        ))
    }

    /// As [`Attr::u8`].
    pub(crate) fn u32(self) -> Result<u32> {
        Ok(u32::from_ne_bytes(
            self.payload.try_into().map_err(|_| EINVAL)?,
        ))
    }
}

impl<'a> Request<'a> {
    /// The namespace of the requester's socket.
    pub(crate) fn net(&self) -> Net<'a> {
        // SAFETY: The requester's socket holds its namespace while the request is handled.
        unsafe { Net::from_raw(bindings::genl_info_net(self.info).cast()) }
    }

    /// The attribute of this number, if the request has it.
    pub(crate) fn attr(&self, number: u16) -> Option<Attr<'a>> {
        let number = usize::from(number);
        if number > self.max || self.info.attrs.is_null() {
            return None;
        }
        // SAFETY: The core's array reaches up to the policy's last attribute, and each entry is
        // null or an attribute of the message, which lives as long as the request.
        unsafe {
            let raw = *self.info.attrs.add(number);
            if raw.is_null() {
                return None;
            }
            let header = size_of::<bindings::nlattr>();
            let len = usize::from((*raw).nla_len).checked_sub(header)?;
            let payload = core::slice::from_raw_parts(raw.cast::<u8>().add(header), len);
            Some(Attr { raw, payload })
        }
    }

    /// The user who owns `sk`, as a number in the requester's user namespace.
    pub(crate) fn uid_of(&self, sk: Sk) -> u32 {
        // SAFETY: Both are valid; a netlink message has the socket of its sender.
        unsafe { bindings::sk_uid_seen_by(sk.as_ptr().cast(), self.from.cast()) }
    }

    /// Reports a bad attribute: returns the error, and puts a message and the attribute into the
    /// extended acknowledgement.
    pub(crate) fn refuse(&self, attr: Attr<'_>, why: &'static CStr) -> Error {
        // SAFETY: The core's answer lives as long as the request; the message is static.
        unsafe {
            if let Some(answer) = self.info.extack.as_mut() {
                answer._msg = why.as_char_ptr();
                answer.bad_attr = attr.raw;
            }
        }
        EINVAL
    }
}

/// A message that is being written. If it is dropped before [`Message::end`], it is removed.
pub(crate) struct Message<'a> {
    skb: *mut bindings::sk_buff,
    header: *mut c_void,
    _life: PhantomData<&'a mut ()>,
}

/// The fields of a message's header.
#[derive(Copy, Clone)]
struct Head {
    family: *const bindings::genl_family,
    portid: u32,
    seq: u32,
    cmd: u8,
}

impl<'a> Message<'a> {
    /// Begins a message.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if there is no room left.
    ///
    /// # Safety
    ///
    /// `skb` is valid, and nobody else uses it as long as the message lives; the family is
    /// registered.
    unsafe fn begin(skb: *mut bindings::sk_buff, head: Head, flags: i32) -> Result<Self> {
        let Head {
            family,
            portid,
            seq,
            cmd,
        } = head;
        // SAFETY: As the caller promises.
        let header = unsafe { bindings::genlmsg_put(skb, portid, seq, family, flags, cmd) };
        if header.is_null() {
            return Err(EMSGSIZE);
        }
        Ok(Self {
            skb,
            header,
            _life: PhantomData,
        })
    }
}

impl Message<'_> {
    /// Adds an attribute.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if there is no room for the attribute, as for all functions that add attributes.
    pub(crate) fn put(&mut self, number: u16, payload: &[u8]) -> Result {
        let len = i32::try_from(payload.len()).map_err(|_| EMSGSIZE)?;
        // SAFETY: The buffer is valid; there are `len` bytes.
        to_result(unsafe {
            bindings::nla_put(self.skb, number.into(), len, payload.as_ptr().cast())
        })
    }

    pub(crate) fn put_u8(&mut self, number: u16, value: u8) -> Result {
        self.put(number, &value.to_ne_bytes())
    }

    pub(crate) fn put_u16(&mut self, number: u16, value: u16) -> Result {
        self.put(number, &value.to_ne_bytes())
    }

    pub(crate) fn put_u32(&mut self, number: u16, value: u32) -> Result {
        self.put(number, &value.to_ne_bytes())
    }

    /// Adds a number of netlink's type `uint`: four bytes, or eight if the number needs them.
    pub(crate) fn put_uint(&mut self, number: u16, value: u64) -> Result {
        match u32::try_from(value) {
            Ok(small) => self.put_u32(number, small),
            Err(_) => self.put(number, &value.to_ne_bytes()),
        }
    }

    /// Adds a string that is given in parts, with the terminating zero of netlink.
    pub(crate) fn put_str(&mut self, number: u16, parts: &[&str]) -> Result {
        let mut room = [0; STRING_ROOM];
        let mut used = 0;
        for part in parts {
            let end = used + part.len();
            let to = room.get_mut(used..end).ok_or(EMSGSIZE)?;
            to.copy_from_slice(part.as_bytes());
            used = end;
        }
        self.put(number, room.get(..=used).ok_or(EMSGSIZE)?)
    }

    /// Adds a nested attribute, with the attributes that `write` adds.
    ///
    /// # Errors
    ///
    /// As [`Message::put`]. Then the message cannot be sent.
    pub(crate) fn nest(&mut self, number: u16, write: impl FnOnce(&mut Self) -> Result) -> Result {
        // SAFETY: The buffer is valid.
        let start = unsafe { bindings::nla_nest_start(self.skb.cast(), number.into()) };
        if start.is_null() {
            return Err(EMSGSIZE);
        }
        write(self)?;
        // SAFETY: The attribute was begun in this buffer above, and contains everything added
        // since.
        unsafe { bindings::nla_nest_end(self.skb.cast(), start) };
        Ok(())
    }

    /// Completes the message.
    pub(crate) fn end(self) {
        // SAFETY: The message was begun in this buffer.
        unsafe { bindings::genlmsg_end(self.skb, self.header) };
        core::mem::forget(self);
    }
}

/// Bytes of the longest string, with its zero.
const STRING_ROOM: usize = 128;

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // SAFETY: The message was begun in this buffer, and nothing follows it.
        unsafe { bindings::genlmsg_cancel(self.skb, self.header) };
    }
}

/// An operation with one answer.
pub(crate) trait Get {
    const CMD: u8;

    /// Writes the answer.
    fn get(request: &Request<'_>, out: &mut Message<'_>) -> Result;
}

/// An operation whose answer consists of many messages. One buffer is written at a time, as the
/// requester reads.
pub(crate) trait Dump {
    const CMD: u8;
    const POLICY: &'static [Policy];
    /// Size of the longest message. The core allocates buffers of at least this size; its default
    /// buffer may be smaller than a page, and a message that does not fit into an empty buffer
    /// would end the dump.
    const MESSAGE_BYTES: usize;
    /// The position at which the next buffer begins; zeros for the first.
    type Cursor: Zeroable;

    /// Checks the request before the first message.
    fn check(request: &Request<'_>) -> Result;

    /// Writes messages by `next` until nothing is left; returns the `EMSGSIZE` of a full buffer.
    fn dump(request: &Request<'_>, cursor: &mut Self::Cursor, out: &mut DumpBuffer<'_>) -> Result;
}

/// The buffer of a dump.
pub(crate) struct DumpBuffer<'a> {
    skb: *mut bindings::sk_buff,
    head: Head,
    _life: PhantomData<&'a mut ()>,
}

impl DumpBuffer<'_> {
    /// Begins the next message.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the buffer is full.
    pub(crate) fn next(&mut self) -> Result<Message<'_>> {
        // SAFETY: While the dump runs, only this code uses the core's buffer; the message borrows
        // `self`.
        unsafe { Message::begin(self.skb, self.head, bindings::NLM_F_MULTI as i32) }
    }
}

/// The policy of requests without attributes.
const NOTHING: &[Policy] = &[rejected(), rejected()];

/// The operation in the core's form.
pub(crate) const fn get_op<T: Get>() -> bindings::genl_split_ops {
    // SAFETY: An unused member is a null pointer or zero.
    let mut op: bindings::genl_split_ops = unsafe { core::mem::zeroed() };
    op.__bindgen_anon_1.__bindgen_anon_1 = bindings::genl_split_ops__bindgen_ty_1__bindgen_ty_1 {
        pre_doit: None,
        doit: Some(doit::<T>),
        post_doit: None,
    };
    op.policy = NOTHING.as_ptr();
    op.maxattr = NOTHING.len() as u32 - 1;
    op.cmd = T::CMD;
    op.flags = bindings::GENL_CMD_CAP_DO as u8;
    op
}

/// As [`get_op`].
pub(crate) const fn dump_op<T: Dump>() -> bindings::genl_split_ops {
    const {
        // The core stores the cursor between two buffers.
        assert!(size_of::<T::Cursor>() <= bindings::SDP_CONST_NETLINK_CTX_SIZE);
        assert!(align_of::<T::Cursor>() <= align_of::<kernel::ffi::c_long>());
        assert!(!T::POLICY.is_empty());
    }
    // SAFETY: An unused member is a null pointer or zero.
    let mut op: bindings::genl_split_ops = unsafe { core::mem::zeroed() };
    op.__bindgen_anon_1.__bindgen_anon_2 = bindings::genl_split_ops__bindgen_ty_1__bindgen_ty_2 {
        start: Some(start::<T>),
        dumpit: Some(dumpit::<T>),
        done: None,
    };
    op.policy = T::POLICY.as_ptr();
    op.maxattr = T::POLICY.len() as u32 - 1;
    op.cmd = T::CMD;
    op.flags = bindings::GENL_CMD_CAP_DUMP as u8;
    op
}

/// # Safety
///
/// Called by the core, for an operation made by [`get_op`].
unsafe extern "C" fn doit<T: Get>(
    skb: *mut bindings::sk_buff,
    info: *mut bindings::genl_info,
) -> kernel::ffi::c_int {
    // SAFETY: The core passes a valid request.
    let answered = unsafe { answer::<T>(skb, info) };
    answered.map_or_else(|e| e.to_errno(), |()| 0)
}

/// # Safety
///
/// `skb` and `info` are a request, with attributes by the policy of [`get_op`].
unsafe fn answer<T: Get>(skb: *mut bindings::sk_buff, info: *mut bindings::genl_info) -> Result {
    let mut room = OwnBuffer::new(bindings::SDP_CONST_GFP_KERNEL)?;
    // SAFETY: As the caller promises.
    let info_ref = unsafe { &*info };
    let request = Request {
        info: info_ref,
        max: NOTHING.len() - 1,
        from: skb,
    };
    let mut message = room.begin(Head {
        family: info_ref.family,
        portid: info_ref.snd_portid,
        seq: info_ref.snd_seq,
        cmd: T::CMD,
    })?;
    T::get(&request, &mut message)?;
    message.end();
    // SAFETY: The function takes over the buffer, even if it fails.
    to_result(unsafe { bindings::genlmsg_reply(room.into_raw(), info) })
}

/// # Safety
///
/// Called by the core, for an operation made by [`dump_op`].
unsafe extern "C" fn start<T: Dump>(cb: *mut bindings::netlink_callback) -> kernel::ffi::c_int {
    // SAFETY: The core passes a valid dump, which no other code knows yet.
    let request = unsafe {
        (*cb).min_dump_alloc = T::MESSAGE_BYTES as u32;
        request_of::<T>(cb)
    };
    if !has_started() {
        return EAGAIN.to_errno();
    }
    T::check(&request).map_or_else(|e| e.to_errno(), |()| 0)
}

/// # Safety
///
/// Called by the core, for an operation made by [`dump_op`].
unsafe extern "C" fn dumpit<T: Dump>(
    skb: *mut bindings::sk_buff,
    cb: *mut bindings::netlink_callback,
) -> kernel::ffi::c_int {
    // SAFETY: The core passes a valid dump and a buffer for its messages. Its context has the size
    // and the alignment of a cursor ([`dump_op`]), and is zeroed when the dump starts. Only one
    // call runs at a time.
    unsafe {
        let request = request_of::<T>(cb);
        let cursor = &mut *(&raw mut (*cb).__bindgen_anon_1).cast::<T::Cursor>();
        let mut out = DumpBuffer {
            skb,
            head: Head {
                family: request.info.family,
                portid: request.info.snd_portid,
                seq: request.info.snd_seq,
                cmd: T::CMD,
            },
            _life: PhantomData,
        };
        // A full buffer is `EMSGSIZE`: the core sends it and calls this function again.
        T::dump(&request, cursor, &mut out).map_or_else(|e| e.to_errno(), |()| 0)
    }
}

/// # Safety
///
/// `cb` is a dump of an operation made by [`dump_op`], and outlives the request.
unsafe fn request_of<'a, T: Dump>(cb: *mut bindings::netlink_callback) -> Request<'a> {
    // SAFETY: As the caller promises.
    unsafe {
        Request {
            info: &*bindings::genl_info_dump(cb.cast()).cast(),
            max: T::POLICY.len() - 1,
            from: (*cb).skb,
        }
    }
}

/// A buffer allocated by the module.
struct OwnBuffer(*mut bindings::sk_buff);

impl OwnBuffer {
    fn new(gfp: bindings::gfp_t) -> Result<Self> {
        // SAFETY: No precondition; the result is checked.
        let skb = unsafe { bindings::genlmsg_new(MESSAGE_ROOM, gfp) };
        if skb.is_null() {
            return Err(ENOMEM);
        }
        Ok(Self(skb.cast()))
    }

    /// Begins the only message of the buffer.
    fn begin(&mut self, head: Head) -> Result<Message<'_>> {
        // SAFETY: The value owns the buffer, and the message borrows the value.
        unsafe { Message::begin(self.0, head, 0) }
    }

    fn into_raw(self) -> *mut bindings::sk_buff {
        let skb = self.0;
        core::mem::forget(self);
        skb
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        // SAFETY: The value owns the buffer, and nobody else uses it.
        unsafe { bindings::nlmsg_free(self.0.cast()) };
    }
}

/// Size of the attributes of one message outside a dump.
const MESSAGE_ROOM: usize = 1024;

/// Operations, as a constant for the core.
#[repr(transparent)]
pub(crate) struct Ops<const N: usize>(pub(crate) [bindings::genl_split_ops; N]);

// SAFETY: It is never written to; everything that it points to is static.
unsafe impl<const N: usize> Sync for Ops<N> {}

/// The multicast group of a family, with the name that [`Family::register`] gives it.
struct Group(bindings::genl_multicast_group);

/// A family with one multicast group.
pub(crate) struct Family {
    raw: Shared<bindings::genl_family>,
    group: Shared<Group>,
}

impl Family {
    /// A family that is not yet registered.
    pub(crate) const fn new() -> Self {
        Self {
            // SAFETY: An unused member is zero; the members are set before registration.
            raw: Shared::new(unsafe { core::mem::zeroed() }),
            // SAFETY: As above.
            group: Shared::new(unsafe { core::mem::zeroed() }),
        }
    }

    /// Registers the family; requests may come before this returns.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a family of this name, `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The family is not registered, and nobody else uses it.
    pub(crate) unsafe fn register<const N: usize>(
        &'static self,
        name: &'static CStr,
        group: &'static CStr,
        version: u32,
        ops: &'static Ops<N>,
    ) -> Result {
        // SAFETY: As the caller promises, no other code reads it. All that it points to is static.
        unsafe {
            let family = &mut *self.raw.get();
            let events = &mut *self.group.get();
            copy_name(&mut family.name, name)?;
            copy_name(&mut events.0.name, group)?;
            family.version = version;
            family.set_netnsok(1);
            family.set_parallel_ops(1);
            family.split_ops = ops.0.as_ptr();
            family.n_split_ops = u8::try_from(N).map_err(|_| EINVAL)?;
            // The reserved fields of requests are checked for all commands.
            family.resv_start_op = 1;
            family.mcgrps = &raw const events.0;
            family.n_mcgrps = 1;
            family.module = this_module().cast();
            to_result(bindings::genl_register_family(family))
        }
    }

    /// Unregisters the family; waits for requests that are being answered.
    pub(crate) fn unregister(&'static self) {
        // SAFETY: Registered before. There is no dump, because a dump that has begun holds the
        // module.
        unsafe { bindings::genl_unregister_family(self.raw.get()) };
    }

    /// Whether a socket listens to the group, in any namespace: the core does not keep the
    /// information per namespace.
    pub(crate) fn has_listeners(&'static self, net: Net<'_>) -> bool {
        // SAFETY: The family is registered while there are sockets, and the namespace is valid.
        unsafe { bindings::genl_has_listeners(self.raw.get().cast(), net.as_ptr().cast(), 0) != 0 }
    }

    /// Sends a message to the group, in any context. Listeners that miss the message, because there
    /// is no memory for it here or in their sockets, learn that they have missed something.
    pub(crate) fn notify(
        &'static self,
        net: Net<'_>,
        cmd: u8,
        write: impl FnOnce(&mut Message<'_>) -> Result,
    ) {
        let gfp = bindings::SDP_CONST_GFP_ATOMIC | bindings::SDP_CONST___GFP_NOWARN;
        let (family, net) = (self.raw.get().cast(), net.as_ptr().cast());
        match self.compose(cmd, gfp, write) {
            // SAFETY: The family is registered while there are sockets; the function takes over the
            // buffer. It may fail because nobody listens any more.
            Ok(room) => unsafe {
                bindings::genlmsg_multicast_netns(family, net, room.into_raw().cast(), gfp);
            },
            // SAFETY: As above.
            Err(_) => unsafe {
                bindings::genl_set_err(family, net, 0, 0, ENOBUFS.to_errno());
            },
        }
    }

    fn compose(
        &'static self,
        cmd: u8,
        gfp: bindings::gfp_t,
        write: impl FnOnce(&mut Message<'_>) -> Result,
    ) -> Result<OwnBuffer> {
        let mut room = OwnBuffer::new(gfp)?;
        let mut message = room.begin(Head {
            family: self.raw.get(),
            portid: 0,
            seq: 0,
            cmd,
        })?;
        write(&mut message)?;
        message.end();
        Ok(room)
    }
}

fn copy_name(to: &mut [kernel::ffi::c_char; 16], from: &CStr) -> Result {
    let from = from.to_bytes_with_nul();
    let to = to.get_mut(..from.len()).ok_or(EINVAL)?;
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from as kernel::ffi::c_char;
    }
    Ok(())
}
