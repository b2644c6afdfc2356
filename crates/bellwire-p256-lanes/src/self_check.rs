//! Known results, which an engine must compute before its first use.

use std::array::from_fn;

use crate::{Engine, LANES, Scalars};

/// Number as RFC 5903 writes it: highest word first.
type Words = [u64; 4];

/// RFC 5903 section 8.1: private keys k of initiator and responder, which are odd, and n − k, which are even.
const PRIVATE: [Words; 4] = [
    [0xc88f_01f5_10d9_ac3f, 0x70a2_92da_a231_6de5, 0x44e9_aab8_afe8_4049, 0xc62a_9c57_862d_1433],
    [0xc6ef_9c5d_78ae_012a, 0x0111_64ac_b397_ce20, 0x8868_5d8f_06bf_9be0, 0xb283_ab46_476b_ee53],
    [0x3770_fe09_ef26_53c1, 0x8f5d_6d25_5dce_921a, 0x77fd_4ff4_f72f_5e3b, 0x2d8f_2e6b_7636_111e],
    [0x3910_63a1_8751_fed6, 0xfeee_9b53_4c68_31df, 0x347e_9d1e_a058_02a4, 0x4136_1f7c_b4f7_36fe],
];
/// Public keys of the private keys above. Those of k and n − k are opposite points.
const PUBLIC: [[Words; 2]; 4] = [
    [
        [0xdad0_b653_9422_1cf9, 0xb051_e1fe_ca57_87d0, 0x98df_e637_fc90_b9ef, 0x945d_0c37_7258_1180],
        [0x5271_a046_1cdb_8252, 0xd61f_1c45_6fa3_e59a, 0xb1f4_5b33_accf_5f58, 0x389e_0577_b899_0bb3],
    ],
    [
        [0xd12d_fb52_89c8_d4f8, 0x1208_b702_7039_8c34, 0x2296_970a_0bcc_b74c, 0x736f_c755_4494_bf63],
        [0x56fb_f3ca_366c_c23e, 0x8157_854c_13c5_8d6a, 0xac23_f046_ada3_0f83, 0x53e7_4f33_0398_72ab],
    ],
    [
        [0xdad0_b653_9422_1cf9, 0xb051_e1fe_ca57_87d0, 0x98df_e637_fc90_b9ef, 0x945d_0c37_7258_1180],
        [0xad8e_5fb8_e324_7dae, 0x29e0_e3ba_905c_1a65, 0x4e0b_a4cd_5330_a0a7, 0xc761_fa88_4766_f44c],
    ],
    [
        [0xd12d_fb52_89c8_d4f8, 0x1208_b702_7039_8c34, 0x2296_970a_0bcc_b74c, 0x736f_c755_4494_bf63],
        [0xa904_0c34_c993_3dc2, 0x7ea8_7ab3_ec3a_7295, 0x53dc_0fba_525c_f07c, 0xac18_b0cc_fc67_8d54],
    ],
];
/// The secret that the first and the second share, and the third and the fourth.
const SHARED: Words = [0xd684_0f6b_42f6_edaf, 0xd131_16e0_e125_6520, 0x2fef_8e9e_ce7d_ce03, 0x8124_64d0_4b94_42de];

/// Tests whether every lane computes all four sides of the agreements.
pub(crate) fn passes(engine: Engine) -> bool {
    (0..PRIVATE.len()).all(|shift| {
        let side = |lane: usize| (lane + shift) % PRIVATE.len();
        let scalars = Scalars::from_be_bytes(&from_fn(|lane| octets(&PRIVATE[side(lane)])));
        let found = scalars.map(|scalars| engine.exchange(&scalars, &from_fn(|lane| point(&PUBLIC[side(lane) ^ 1]))));
        found.is_some_and(|found| {
            (0..LANES).all(|lane| {
                let shared = found.shared[lane].as_ref().is_some_and(|shared| **shared == octets(&SHARED));
                shared && found.public[lane] == point(&PUBLIC[side(lane)])
            })
        })
    })
}

fn octets(words: &Words) -> [u8; 32] {
    let mut octets = [0; 32];
    octets.as_chunks_mut().0.iter_mut().zip(words).for_each(|(octets, word)| *octets = word.to_be_bytes());
    octets
}

fn point([x, y]: &[Words; 2]) -> [u8; 65] {
    let mut point = [4; 65];
    point[1..33].copy_from_slice(&octets(x));
    point[33..].copy_from_slice(&octets(y));
    point
}
