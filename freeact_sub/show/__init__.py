"""What all front ends share: open questions, what agents do, the wording of calls and endings, safe HTML. They only draw."""
