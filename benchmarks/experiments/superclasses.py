"""Superclasses of CIFAR-10 and CIFAR-100, and domains of CLINC150: groups of class names, and how a tree keeps them.

Those of CIFAR-100 are the data set's own coarse labels, those of CLINC150 its own domains; CIFAR-10 has none, and is
parted into animals and vehicles as the paper reads its tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gptree import ClassTree

CIFAR10 = {
    "vehicles": "airplane automobile ship truck",
    "animals": "bird cat deer dog frog horse",
}
CIFAR100 = {
    "aquatic mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food containers": "bottle bowl can cup plate",
    "fruit and vegetables": "apple mushroom orange pear sweet_pepper",
    "household electrical devices": "clock keyboard lamp telephone television",
    "household furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large carnivores": "bear leopard lion tiger wolf",
    "large man-made outdoor things": "bridge castle house road skyscraper",
    "large natural outdoor scenes": "cloud forest mountain plain sea",
    "large omnivores and herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium-sized mammals": "fox porcupine possum raccoon skunk",
    "non-insect invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles 1": "bicycle bus motorcycle pickup_truck train",
    "vehicles 2": "lawn_mower rocket streetcar tank tractor",
}
CLINC150 = {
    "banking": "freeze_account routing pin_change bill_due pay_bill account_blocked interest_rate min_payment "
    "bill_balance transfer order_checks balance spending_history transactions report_fraud",
    "credit cards": "replacement_card_duration expiration_date damaged_card improve_credit_score report_lost_card "
    "card_declined credit_limit_change apr redeem_rewards credit_limit rewards_balance application_status "
    "credit_score new_card international_fees",
    "kitchen and dining": "food_last confirm_reservation how_busy ingredients_list calories nutrition_info recipe "
    "restaurant_reviews restaurant_reservation meal_suggestion restaurant_suggestion cancel_reservation "
    "ingredient_substitution cook_time accept_reservations",
    "home": "what_song play_music todo_list_update reminder reminder_update calendar_update order_status "
    "update_playlist shopping_list calendar next_song order todo_list shopping_list_update smart_home",
    "auto and commute": "current_location oil_change_when oil_change_how uber traffic tire_pressure "
    "schedule_maintenance gas mpg distance directions last_maintenance gas_type tire_change jump_start",
    "travel": "plug_type travel_notification translate flight_status international_visa timezone exchange_rate "
    "travel_suggestion travel_alert vaccines lost_luggage book_flight book_hotel carry_on car_rental",
    "utility": "weather alarm date find_phone share_location timer make_call calculator definition "
    "measurement_conversion flip_coin spelling time roll_dice text",
    "work": "pto_request_status next_holiday insurance_change insurance meeting_schedule payday taxes income "
    "rollover_401k pto_balance pto_request w2 schedule_meeting direct_deposit pto_used",
    "small talk": "who_made_you meaning_of_life who_do_you_work_for do_you_have_pets what_are_your_hobbies fun_fact "
    "what_is_your_name where_are_you_from goodbye thank_you greeting tell_joke are_you_a_bot how_old_are_you "
    "what_can_i_ask_you",
    "meta": "change_speed user_name whisper_mode yes change_volume no change_language repeat change_accent cancel "
    "sync_device change_user_name change_ai_name reset_settings maybe",
}
GROUPS = {"cifar10": CIFAR10, "cifar100": CIFAR100, "clinc150": CLINC150}


def group_numbers(groups: Mapping[str, str], names: Sequence[str]) -> np.ndarray:
    """The number of the group of each class (C,)."""
    number = {name: g for g, members in enumerate(groups.values()) for name in members.split()}
    unknown = [name for name in names if name not in number]
    if unknown:
        raise ValueError(f"{len(unknown)} classes are in no group, the first {unknown[0]!r}.")
    return np.array([number[name] for name in names])


def purity(tree: ClassTree, groups: np.ndarray) -> float:
    """Dendrogram purity of a tree over classes with group numbers (C,).

    Of two classes of a group drawn at random, the share that the group has in the smallest sub-tree with both, in
    expectation. One where every group is a sub-tree.
    """
    below = np.eye(groups.max() + 1)[groups[tree.order]].cumsum(axis=0)
    below = np.concatenate([np.zeros_like(below[:1]), below])  # of each group, how many are before a position
    left, right = below[tree.mid] - below[tree.lo], below[tree.hi] - below[tree.mid]
    pairs = left * right  # of a group, that part at this node
    share = (left + right) / (tree.hi - tree.lo)[:, None]
    return float((pairs * share).sum() / pairs.sum())


def whole_groups(tree: ClassTree, groups: np.ndarray) -> int:
    """How many groups are a sub-tree of their own."""
    counts = np.bincount(groups)
    inside = [np.bincount(groups[tree.members(v)], minlength=len(counts)) for v in range(tree.n_nodes)]
    return sum(count == 1 or any(s[g] == s.sum() == count for s in inside) for g, count in enumerate(counts))
