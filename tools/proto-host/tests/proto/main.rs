// SPDX-License-Identifier: GPL-2.0

//! Tests of the protocol layer, in one program because linking costs more than
//! running them.

mod advert_model;
mod bsdh;
mod close_model;
mod credit_model;
mod credits;
mod hello;
mod message;
mod names;
mod policy;
mod smoke;
mod state;
