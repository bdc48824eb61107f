"""The attackers of an audit. They read words, facts and texts from stolen vectors.

`ridge` reads words in closed form, `text_attacker` trains an inverter, `candidates` tries given names.
`alignment` undoes a rotation, `averaging` cancels noise, `unknown_encoder` does without the encoder.
`attacker` has their interfaces.
"""
