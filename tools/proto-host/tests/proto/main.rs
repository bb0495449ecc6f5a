// SPDX-License-Identifier: GPL-2.0

//! Tests of the protocol layer, in one program because linking costs more than
//! running them.

mod advert_model;
mod bsdh;
mod choice;
mod close_model;
mod credit_model;
mod credits;
mod deferral;
mod digits;
mod early;
mod half;
mod hello;
mod keepalive;
mod kind;
mod message;
mod names;
mod offer;
mod orphan;
mod pace;
mod pause;
mod policy;
mod pull;
mod pull_model;
mod resize;
mod resize_sim;
mod ring;
mod sink;
mod smoke;
mod source;
mod source_reader;
mod split;
mod state;
mod trial;
mod trial_model;
mod trial_sim;
mod urgent;
mod watchdog;
