"""What all front ends share: open questions, agents' activities, the wording of calls and endings, safe HTML."""
